package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/stager-dev/stager/stager/admission/kube"
)

// Owner is a pod's reference to the object that created it.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// counting lists the kinds of owners that define their number of pods: API version, kind and
// resource. A pod of a JobSet is owned by the Job in between.
var counting = []struct{ version, kind, resource string }{
	{"batch/v1", "Job", "jobs"},
	{"kubeflow.org/v1", "PyTorchJob", "pytorchjobs"},
	{"kubeflow.org/v1", "TFJob", "tfjobs"},
	{"kubeflow.org/v1", "XGBoostJob", "xgboostjobs"},
	{"kubeflow.org/v1", "PaddleJob", "paddlejobs"},
	{"kubeflow.org/v1", "JAXJob", "jaxjobs"},
}

// Durations for owners. They are short because an Indexed Job can be scaled and permissions can be
// granted at any time.
const (
	ownerTimeout = 2 * time.Second // shorter than the webhook's own timeout
	ownerKept    = 10 * time.Second
	ownersKept   = 4096
)

// Owners reads the objects that create pods. It reads each object once for all pods that it creates
// at about the same time. It is safe for concurrent use.
type Owners struct {
	API *kube.Client

	fetching singleflight.Group

	mu    sync.Mutex // guards known
	known map[string]ownerFound
}

// ownerFound is a cached owner and its expiry.
type ownerFound struct {
	object []byte
	err    error
	until  time.Time
}

// Find returns the object to which an owner reference in a namespace points. It returns nil for a
// kind that does not define its number of pods.
func (o *Owners) Find(namespace string, owner Owner) (object []byte, err error) {
	i := slices.IndexFunc(counting, func(k struct{ version, kind, resource string }) bool {
		return k.version == owner.APIVersion && k.kind == owner.Kind
	})
	if i < 0 {
		return nil, nil
	}
	path := "/apis/" + counting[i].version + "/namespaces/" + url.PathEscape(namespace) + "/" + counting[i].resource + "/" + url.PathEscape(owner.Name)
	key := path + " " + owner.UID
	if f, ok := o.kept(key); ok {
		return f.object, f.err
	}
	found, err, _ := o.fetching.Do(key, func() (any, error) {
		if f, ok := o.kept(key); ok { // another one has fetched it since
			return f.object, f.err
		}
		object, err := o.read(path, owner)
		o.keep(key, ownerFound{object, err, time.Now().Add(ownerKept)})
		return object, err
	})
	object, _ = found.([]byte)
	return object, err
}

func (o *Owners) kept(key string) (ownerFound, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, ok := o.known[key]
	return f, ok && time.Now().Before(f.until)
}

func (o *Owners) keep(key string, f ownerFound) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil || len(o.known) >= ownersKept {
		o.known = make(map[string]ownerFound)
	}
	o.known[key] = f
}

// read fetches an owner from the API server and keeps only its kind, metadata and spec.
func (o *Owners) read(path string, owner Owner) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ownerTimeout)
	defer cancel()
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	err := o.API.Get(ctx, path, &object)
	var status *kube.StatusError
	switch {
	case errors.As(err, &status) && status.Code == http.StatusForbidden:
		return nil, fmt.Errorf("the webhook may not get %s %s (%s)", owner.Kind, owner.Name, strings.TrimSuffix(status.Message, "."))
	case err != nil:
		return nil, fmt.Errorf("%s %s cannot be read: %w", owner.Kind, owner.Name, err)
	case object.Metadata.UID != owner.UID:
		return nil, fmt.Errorf("%s %s is not the pod's owner: its UID is %q, not %q", owner.Kind, owner.Name, object.Metadata.UID, owner.UID)
	}
	object.APIVersion, object.Kind = owner.APIVersion, owner.Kind
	return json.Marshal(object)
}
