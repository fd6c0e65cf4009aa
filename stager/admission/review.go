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

// MaxBody is the largest AdmissionReview that is read, in bytes. The API server itself accepts no
// larger request.
const MaxBody = 3 << 20

// reviewVersion is the only supported version of AdmissionReview.
const reviewVersion = "admission.k8s.io/v1"

// review holds the fields of an AdmissionReview that are used here.
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

// String returns the group, version and kind, such as "apps/v1 Deployment".
func (k groupKind) String() string {
	return strings.TrimPrefix(k.Group+"/"+k.Version, "/") + " " + k.Kind
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	Status    *status  `json:"status,omitempty"`
	Patch     []byte   `json:"patch,omitempty"` // base64 in JSON
	PatchType string   `json:"patchType,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Outcome is the result of a request. It is the value of a metric label.
type Outcome string

// The outcomes.
const (
	Injected  Outcome = "injected"
	Unchanged Outcome = "unchanged" // injected before, or requests no data
	Refused   Outcome = "refused"   // the pod cannot be served, and the response says why
	Malformed Outcome = "malformed" // not a request for this webhook
	Late      Outcome = "late"      // the request was not read in time, or waited too long for its turn
)

var outcomes = []Outcome{Injected, Unchanged, Refused, Malformed, Late}

// RequestError reports a request that is not an AdmissionReview of a supported version.
type RequestError struct {
	Code int // HTTP status
	Text string
}

func (e *RequestError) Error() string { return e.Text }

// Mutator responds to AdmissionReviews.
type Mutator struct {
	// Options apply to every pod. Admission is always set.
	Options jobspec.Options
	// Owner returns the object that created a pod, as Owners.Find does. It is called for pods that
	// have an index but no number of pods. If Owner is nil, no owner is read.
	Owner func(namespace string, owner Owner) (object []byte, err error)
	// Level returns the Pod Security level that a namespace enforces, as Levels.Find does. It is
	// called for pods that request privileges. If Level is nil, or returns "" or an error, the
	// level of Options applies.
	Level func(namespace string) (level string, err error)
}

// Review returns the response to one AdmissionReview. Its error is a [RequestError]. A pod that
// cannot be injected is not an error: the response refuses it.
func (m *Mutator) Review(body []byte) (answer []byte, what Outcome, err error) {
	var asked review
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, Malformed, &RequestError{http.StatusBadRequest, fmt.Sprintf("the body is not an AdmissionReview: %v", err)}
	}
	if asked.APIVersion != reviewVersion || asked.Kind != "AdmissionReview" || asked.Request == nil || asked.Request.UID == "" {
		return nil, Malformed, &RequestError{http.StatusBadRequest, fmt.Sprintf("the webhook accepts %s %s with a request (got %q %q); set its admissionReviewVersions to [v1]",
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
			fmt.Sprintf("stager's webhook accepts %s (got %s); restrict its rules to pods of v1", pod, asked)), Malformed
	case req.Operation != "CREATE":
		// The containers of a pod never change, so there is nothing to inject and nothing to
		// refuse.
		return &response{Allowed: true}, Unchanged
	}
	opts := m.Options
	opts.Admission = true
	if find := opts.ConfigMap; find != nil {
		// The pod itself may not have its namespace yet, so use the one of the request.
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

// meta is the metadata that decides how a pod is handled before injection.
type meta struct {
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
	OwnerReferences []Owner           `json:"ownerReferences"`
}

// metaOf returns the metadata of the pod in a request, or none if it cannot be read.
func metaOf(req *request) meta {
	var pod struct {
		Metadata meta `json:"metadata"`
	}
	if json.Unmarshal(req.Object, &pod) != nil {
		return meta{}
	}
	return pod.Metadata
}

// owner returns the object that created the pod of a request, or the reason why it is unknown.
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
	return nil, "it has no owner reference"
}

func refuse(code int, reason, message string) *response {
	return &response{Status: &status{Code: code, Reason: reason, Message: message}}
}

// sentence returns the text of err without lines and columns, because the user's file differs from
// the text that the API server sends.
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
