package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec"
)

// MaxBody is the largest AdmissionReview that is read, in bytes. The API server itself
// takes no larger request.
const MaxBody = 3 << 20

// reviewVersion is the one version of AdmissionReview that is spoken.
const reviewVersion = "admission.k8s.io/v1"

// review is an AdmissionReview, as far as it matters here.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID         string          `json:"uid"`
	Kind        groupKind       `json:"kind"`
	SubResource string          `json:"subResource"`
	Namespace   string          `json:"namespace"`
	Operation   string          `json:"operation"`
	Object      json.RawMessage `json:"object"`
}

type groupKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// String is "apps/v1 Deployment".
func (k groupKind) String() string {
	return strings.TrimPrefix(k.Group+"/"+k.Version, "/") + " " + k.Kind
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	Status    *status  `json:"status,omitempty"`
	Patch     []byte   `json:"patch,omitempty"` // base64 on the wire
	PatchType string   `json:"patchType,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Outcome is what became of a request. Its text is a metric's label.
type Outcome string

// The outcomes.
const (
	Injected  Outcome = "injected"
	Unchanged Outcome = "unchanged" // injected before, or asking for nothing
	Refused   Outcome = "refused"   // the pod cannot be served, and its user is told why
	Malformed Outcome = "malformed" // no request that the webhook is for
	Late      Outcome = "late"      // it was not whole in time, or its turn did not come
)

var outcomes = []Outcome{Injected, Unchanged, Refused, Malformed, Late}

// RequestError is a request that is no AdmissionReview of a version that is spoken.
type RequestError struct {
	Code int // of HTTP
	Text string
}

func (e *RequestError) Error() string { return e.Text }

// Mutator answers AdmissionReviews.
type Mutator struct {
	// Options are for every pod. Admission is set, whatever they say.
	Options jobspec.Options
	// Owner returns the object that created a pod, as Owners.Find does; nil: none is looked
	// for. It is called for pods that are one of several and do not say of how many.
	Owner func(namespace string, owner Owner) (object []byte, err error)
	// Level returns the level of Pod Security that a namespace enforces, as Levels.Find does;
	// nil, "" and an error: that of Options. It is called for pods that ask for privileges.
	Level func(namespace string) (level string, err error)
}

// Review answers one AdmissionReview. An error is of type [RequestError]; a pod that
// cannot be injected is no error but an answer that refuses it.
func (m *Mutator) Review(body []byte) (answer []byte, what Outcome, err error) {
	var asked review
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, Malformed, &RequestError{http.StatusBadRequest, fmt.Sprintf("this is no AdmissionReview: %v", err)}
	}
	if asked.APIVersion != reviewVersion || asked.Kind != "AdmissionReview" || asked.Request == nil || asked.Request.UID == "" {
		return nil, Malformed, &RequestError{http.StatusBadRequest, fmt.Sprintf("%s %s with a request is answered here, and this is %q %q; the webhook's admissionReviewVersions are to be [v1]",
			reviewVersion, "AdmissionReview", asked.APIVersion, asked.Kind)}
	}
	resp, what := m.respond(asked.Request)
	resp.UID = asked.Request.UID
	answer, err = json.Marshal(review{APIVersion: reviewVersion, Kind: "AdmissionReview", Response: resp})
	return answer, what, err
}

func (m *Mutator) respond(req *request) (*response, Outcome) {
	pod := groupKind{Version: "v1", Kind: "Pod"}
	switch {
	case req.Kind != pod || req.SubResource != "":
		asked := req.Kind.String()
		if req.SubResource != "" {
			asked += " by " + req.SubResource
		}
		return refuse(http.StatusBadRequest, "BadRequest",
			fmt.Sprintf("stager's webhook is for %s, and was asked about %s; its rules are to name pods of v1 alone", pod, asked)), Malformed
	case req.Operation != "CREATE":
		// A pod's containers never change, so there is nothing to be done and nothing to refuse.
		return &response{Allowed: true}, Unchanged
	}
	opts := m.Options
	opts.Admission = true
	if find := opts.ConfigMap; find != nil {
		// The pod itself need not name its namespace yet.
		opts.ConfigMap = func(_, name string) ([]byte, bool) { return find(req.Namespace, name) }
	}
	meta := metaOf(req)
	opts.Owner, opts.NoOwner = m.owner(req, meta)
	if m.Level != nil && meta.Annotations[jobspec.AnnotationPrivileges] != "" {
		if level, err := m.Level(req.Namespace); err == nil && level != "" {
			opts.PodSecurity = level
		}
	}
	result, err := jobspec.Inject(req.Object, opts)
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "Invalid", sentence(err)), Refused
	}
	resp := &response{Allowed: true}
	for _, o := range result.Objects {
		resp.Warnings = append(append(resp.Warnings, o.Unmatched...), o.Warnings...)
		if o.Action == jobspec.LeftAlone && o.Reason != "" {
			resp.Warnings = append(resp.Warnings, fmt.Sprintf("stager left %s alone: %s", o, o.Reason))
		}
	}
	if bytes.Equal(result.Output, req.Object) {
		return resp, Unchanged
	}
	if resp.Patch, err = patch(req.Object, result.Output); err != nil {
		return refuse(http.StatusUnprocessableEntity, "Invalid", fmt.Sprintf("the pod cannot be read as JSON: %v", err)), Refused
	}
	resp.PatchType = "JSONPatch"
	return resp, Injected
}

// meta is what decides about a pod before it is injected.
type meta struct {
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
	OwnerReferences []Owner           `json:"ownerReferences"`
}

// metaOf returns the metadata of the pod of a request; none where it cannot be read.
func metaOf(req *request) meta {
	var pod struct {
		Metadata meta `json:"metadata"`
	}
	if json.Unmarshal(req.Object, &pod) != nil {
		return meta{}
	}
	return pod.Metadata
}

// owner returns the object that created the pod of a request, or why it is not known.
func (m *Mutator) owner(req *request, pod meta) (object []byte, why string) {
	if !jobspec.OneOfSeveral(pod.Labels) || pod.Annotations[jobspec.AnnotationCount] != "" || pod.Annotations[jobspec.AnnotationStatus] != "" {
		return nil, ""
	}
	for _, owner := range pod.OwnerReferences {
		switch {
		case !owner.Controller:
			continue
		case m.Owner == nil:
			return nil, fmt.Sprintf("%s %s created it, and this webhook reads no owners (--no-owners)", owner.Kind, owner.Name)
		}
		object, err := m.Owner(req.Namespace, owner)
		switch {
		case err != nil:
			return nil, err.Error()
		case object == nil:
			return nil, fmt.Sprintf("%s %s created it, which is of a kind that the webhook does not read", owner.Kind, owner.Name)
		}
		return object, ""
	}
	return nil, "no object says that it created it"
}

func refuse(code int, reason, message string) *response {
	return &response{Status: &status{Code: code, Reason: reason, Message: message}}
}

// sentence is what is wrong with a pod without lines and columns: its user wrote
// another text than the API server sends.
func sentence(err error) string {
	var faults jobspec.Faults
	if !errors.As(err, &faults) {
		return err.Error()
	}
	var all []string
	for _, f := range faults {
		f.Line = 0
		all = append(all, f.String())
	}
	return "stager: " + strings.Join(all, "\n")
}
