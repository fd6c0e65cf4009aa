package admission

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stager-dev/stager/stager/admission/kube"
)

// LabelPlan marks ConfigMaps whose plan.yaml the webhook is to know.
const LabelPlan = "stager.dev/plan"

// Plans are the plans of a cluster's ConfigMaps with the label [LabelPlan], as they
// were when they were last read. A pod whose plan is not among them yet is refused, and
// its Job tries again.
type Plans struct {
	API *kube.Client

	known atomic.Pointer[map[planAt]string]
}

type planAt struct{ namespace, name string }

// Sync reads all of them.
func (p *Plans) Sync(ctx context.Context) error {
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name string } `json:"metadata"`
			Data     map[string]string                `json:"data"`
		} `json:"items"`
	}
	if err := p.API.Get(ctx, "/api/v1/configmaps?labelSelector="+LabelPlan, &list); err != nil {
		return fmt.Errorf("ConfigMaps with the label %s: %w", LabelPlan, err)
	}
	known := make(map[planAt]string)
	for _, item := range list.Items {
		if text, ok := item.Data["plan.yaml"]; ok {
			known[planAt{item.Metadata.Namespace, item.Metadata.Name}] = text
		}
	}
	p.known.Store(&known)
	return nil
}

// Known tells whether they have been read at all.
func (p *Plans) Known() bool { return p.known.Load() != nil }

// Find is for jobspec.Options.
func (p *Plans) Find(namespace, name string) (plan []byte, ok bool) {
	known := p.known.Load()
	if known == nil {
		return nil, false
	}
	text, ok := (*known)[planAt{namespace, name}]
	return []byte(text), ok
}
