package admission

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stager-dev/stager/stager/admission/kube"
)

// LabelPlan marks the ConfigMaps whose plan.yaml the webhook reads.
const LabelPlan = "stager.dev/plan"

// Plans caches the plans of all ConfigMaps in a cluster that have the label [LabelPlan]. A pod
// whose plan is not in the cache yet is refused, and its Job retries.
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

// Known reports whether the first Sync has succeeded.
func (p *Plans) Known() bool { return p.known.Load() != nil }

// Find implements jobspec.Options.ConfigMap.
func (p *Plans) Find(namespace, name string) (plan []byte, ok bool) {
	known := p.known.Load()
	if known == nil {
		return nil, false
	}
	text, ok := (*known)[planAt{namespace, name}]
	return []byte(text), ok
}
