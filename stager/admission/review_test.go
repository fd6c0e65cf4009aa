package admission

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/jobspec"
)

const asking = `"stager.dev/in.train": "s3://b/train/ -> /data/train ? mode=window&size=1Gi"`

// podWith returns a pod as the API server sends it.
func podWith(annotations string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"train-","labels":{"stager.dev/inject":"true"},"annotations":{` + annotations + `}},
"spec":{"terminationGracePeriodSeconds":30,"containers":[{"name":"main","image":"trainer","env":[{"name":"A","value":"1"}],
"volumeMounts":[{"name":"token","mountPath":"/var/run/secrets"}]}],"volumes":[{"name":"token","emptyDir":{}}],"priority":9007199254740993}}`
}

// reviewOf returns an AdmissionReview. edit modifies its request.
func reviewOf(t testing.TB, object string, edit func(map[string]any)) []byte {
	t.Helper()
	req := map[string]any{
		"uid": "u-1", "kind": map[string]any{"group": "", "version": "v1", "kind": "Pod"}, "namespace": "team",
		"resource": map[string]any{"group": "", "version": "v1", "resource": "pods"}, "operation": "CREATE", "object": json.RawMessage(object),
	}
	if edit != nil {
		edit(req)
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": req})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// answered returns the response to a review, decoded with Kubernetes' own type.
func answered(t *testing.T, m *Mutator, body []byte) (*admissionv1.AdmissionResponse, Outcome) {
	t.Helper()
	text, what, err := m.Review(body)
	if err != nil {
		t.Fatal(err)
	}
	var r admissionv1.AdmissionReview
	if err := yaml.UnmarshalStrict(text, &r); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if r.APIVersion != reviewVersion || r.Response.UID != "u-1" {
		t.Errorf("answer = %s, want version %s and uid u-1", text, reviewVersion)
	}
	return r.Response, what
}

// applied returns the pod after a patch, applied as the API server does.
func applied(t *testing.T, pod string, ops []byte) []byte {
	t.Helper()
	p, err := jsonpatch.DecodePatch(ops)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Apply([]byte(pod))
	if err != nil {
		t.Fatalf("%v\n%s", err, ops)
	}
	return out
}

func TestReview(t *testing.T) {
	plans := func(namespace, name string) ([]byte, bool) {
		return []byte("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: x}\nspec:\n  inputs: [{name: a, source: s3://b/a/, path: /a}]\n"),
			namespace == "team" && name == "there"
	}
	for name, c := range map[string]struct {
		pod     string
		edit    func(map[string]any)
		what    Outcome
		message string // a part of the refusal or a warning
	}{
		"a pod that asks":     {pod: podWith(asking), what: Injected},
		"a plan by ConfigMap": {pod: podWith(`"stager.dev/plan": "configmap:there"`), what: Injected},
		"a plan that is not there": {
			pod: podWith(`"stager.dev/plan": "configmap:gone"`), what: Refused, message: "the webhook found no ConfigMap gone with the key plan.yaml in this namespace; create it with the label stager.dev/plan",
		},
		"a label alone": {pod: podWith(`"other": "x"`), what: Unchanged, message: "it requests no data"},
		"an annotation that does not parse": {
			pod: podWith(`"stager.dev/in.train": "s3://b/"`), what: Refused, message: `has no " -> "`,
		},
		"a container of that name": {
			pod:  strings.Replace(podWith(asking), `"main"`, `"stager"`, 1),
			what: Refused, message: "the container stager already exists",
		},
		"injected by whom ever": {pod: podWith(asking + `,"stager.dev/status": "v0;other"`), what: Unchanged},
		"not created": {
			pod: podWith(asking), edit: func(r map[string]any) { r["operation"] = "UPDATE" }, what: Unchanged,
		},
		"another kind": {
			pod: `{"apiVersion":"apps/v1","kind":"Deployment"}`,
			edit: func(r map[string]any) {
				r["kind"] = map[string]any{"group": "apps", "version": "v1", "kind": "Deployment"}
			},
			what: Malformed, message: "(got apps/v1 Deployment)",
		},
		"another version": {
			pod: podWith(asking), edit: func(r map[string]any) { r["kind"] = map[string]any{"version": "v2", "kind": "Pod"} },
			what: Malformed, message: "(got v2 Pod)",
		},
		"a subresource": {
			pod: podWith(asking), edit: func(r map[string]any) { r["subResource"] = "eviction" }, what: Malformed, message: "by eviction",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Mutator{Options: jobspec.Options{ConfigMap: plans}}
			r, what := answered(t, m, reviewOf(t, c.pod, c.edit))
			if what != c.what || r.Allowed != (what == Injected || what == Unchanged) || (len(r.Patch) > 0) != (what == Injected) {
				t.Errorf("outcome %s, allowed %v, patch %s; want %s", what, r.Allowed, r.Patch, c.what)
			}
			reported := strings.Join(r.Warnings, "\n")
			if r.Result != nil {
				reported += r.Result.Message
			}
			if !strings.Contains(reported, c.message) || c.message == "" && reported != "" {
				t.Errorf("told %q, want %q", reported, c.message)
			}
			if what != Injected {
				return
			}
			pod := applied(t, c.pod, r.Patch)
			if err := yaml.UnmarshalStrict([]byte(strings.Replace(string(pod), "9007199254740993", "1", 1)), new(corev1.Pod)); err != nil {
				t.Errorf("the patched pod: %v", err)
			}
			if !strings.Contains(string(pod), "9007199254740993") || strings.Contains(string(r.Patch), "main\"") {
				t.Errorf("the patch touches what it need not: %s", r.Patch)
			}
			// The API server calls the webhook again after another webhook has changed the pod.
			if again, what := answered(t, m, reviewOf(t, string(pod), nil)); what != Unchanged || again.Patch != nil {
				t.Errorf("asked again: %s %s, want unchanged", what, again.Patch)
			}
		})
	}
}

// Users who see a refusal have created an object in the cluster and not typed a stager command. The
// message once recommended to give a file, or --plan.
func TestRefusalsAreNotAboutTheCommandLine(t *testing.T) {
	for name, pod := range map[string]string{
		"a plan that is not there": podWith(`"stager.dev/plan": "configmap:gone"`),
		"a RAM disk over the memory limit": strings.Replace(podWith(`"stager.dev/in.train": "s3://b/ -> /data ? medium=memory&size=20Gi"`),
			`"image":"trainer",`, `"image":"trainer","resources":{"limits":{"memory":"16Gi"}},`, 1),
		"checkpoints of nodes without an identity": podWith(`"stager.dev/out.ckpt": "/out -> s3://b/ ? nodes=all&deadline=1m"`),
	} {
		r, what := answered(t, &Mutator{}, reviewOf(t, pod, nil))
		got := strings.Join(r.Warnings, "\n")
		if r.Result != nil {
			got += r.Result.Message
		}
		for _, flag := range []string{"--plan", "or let --adjust-memory", "--container-env", "give its file"} {
			if got == "" || strings.Contains(got, flag) {
				t.Errorf("%s: %s, %q, want a sentence without %s", name, what, got, flag)
			}
		}
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":         "pod",
		"another version": strings.Replace(string(reviewOf(t, podWith(asking), nil)), "k8s.io/v1", "k8s.io/v1beta1", 1),
		"another kind":    `{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{"uid":"x"}}`,
		"no request":      `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
	} {
		_, what, err := new(Mutator).Review([]byte(body))
		var bad *RequestError
		if !errors.As(err, &bad) || bad.Code != http.StatusBadRequest || what != Malformed {
			t.Errorf("%s: %v, %v; want a RequestError with code 400", name, what, err)
		}
	}
}
