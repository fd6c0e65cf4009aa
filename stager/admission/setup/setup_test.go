package setup

import (
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/internal/golden"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

var typed = map[string]func() any{
	"Namespace":                    func() any { return new(corev1.Namespace) },
	"ServiceAccount":               func() any { return new(corev1.ServiceAccount) },
	"Secret":                       func() any { return new(corev1.Secret) },
	"Service":                      func() any { return new(corev1.Service) },
	"Role":                         func() any { return new(rbacv1.Role) },
	"RoleBinding":                  func() any { return new(rbacv1.RoleBinding) },
	"ClusterRole":                  func() any { return new(rbacv1.ClusterRole) },
	"ClusterRoleBinding":           func() any { return new(rbacv1.ClusterRoleBinding) },
	"PodDisruptionBudget":          func() any { return new(policyv1.PodDisruptionBudget) },
	"Deployment":                   func() any { return new(appsv1.Deployment) },
	"MutatingWebhookConfiguration": func() any { return new(admissionv1.MutatingWebhookConfiguration) },
	"MutatingAdmissionPolicy":      func() any { return new(admissionv1.MutatingAdmissionPolicy) },

	"ValidatingAdmissionPolicy":        func() any { return new(admissionv1.ValidatingAdmissionPolicy) },
	"ValidatingAdmissionPolicyBinding": func() any { return new(admissionv1.ValidatingAdmissionPolicyBinding) },
	"MutatingAdmissionPolicyBinding":   func() any { return new(admissionv1.MutatingAdmissionPolicyBinding) },
}

// manifests compares manifests with a golden file and decodes them strictly. Kinds outside of
// Kubernetes are passed as others.
func manifests(t *testing.T, name string, got []byte, others ...string) map[string]any {
	t.Helper()
	golden.File(t, filepath.Join("testdata", name+".yaml"), got)
	objects := make(map[string]any)
	for _, d := range yamledit.Split(got) {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(d.Text, &head); err != nil {
			t.Fatalf("%v\n%s", err, d.Text)
		}
		if head.Kind == "" || strings.Contains(strings.Join(others, " "), head.Kind) {
			continue
		}
		into := typed[head.Kind]
		if into == nil {
			t.Fatalf("the test does not know the kind %s", head.Kind)
		}
		object := into()
		if err := yaml.UnmarshalStrict(d.Text, object); err != nil {
			t.Errorf("%s: %v\n%s", head.Kind, err, d.Text)
		}
		objects[head.Kind] = object
	}
	return objects
}

func usual() Webhook {
	return Webhook{Name: "stager-webhook", Namespace: "stager", Image: "registry.example.com/stager:1", Replicas: 2, Args: []string{"--image=registry.example.com/stager:1"}, ConfigMaps: true, Owners: true, Namespaces: true}
}

func TestWebhook(t *testing.T) {
	text, err := usual().YAML()
	if err != nil {
		t.Fatal(err)
	}
	objects := manifests(t, "webhook", text)
	hook := objects["MutatingWebhookConfiguration"].(*admissionv1.MutatingWebhookConfiguration).Webhooks[0]
	if *hook.FailurePolicy != admissionv1.Fail || *hook.ReinvocationPolicy != admissionv1.IfNeededReinvocationPolicy ||
		*hook.SideEffects != admissionv1.SideEffectClassNone || *hook.TimeoutSeconds != 5 || hook.ObjectSelector.MatchLabels[jobspec.LabelInject] != "true" {
		t.Errorf("the webhook = %+v", hook)
	}
	// Rules without resource names may only list ConfigMaps and get owners and namespaces.
	for _, rule := range append(objects["Role"].(*rbacv1.Role).Rules, objects["ClusterRole"].(*rbacv1.ClusterRole).Rules...) {
		plans := rule.Resources[0] == "configmaps" && rule.Verbs[0] == "list" && len(rule.Verbs) == 1
		owners := (rule.APIGroups[0] == "batch" || rule.APIGroups[0] == "kubeflow.org") && rule.Verbs[0] == "get" && len(rule.Verbs) == 1
		levels := rule.Resources[0] == "namespaces" && rule.Verbs[0] == "get" && len(rule.Verbs) == 1
		if len(rule.ResourceNames) != 1 && !plans && !owners && !levels {
			t.Errorf("a right without a name: %+v", rule)
		}
	}
}

func TestWebhookWithCertManager(t *testing.T) {
	w := usual()
	w.CertManager, w.ConfigMaps, w.Owners, w.Namespaces = true, false, false, false
	text, err := w.YAML()
	if err != nil {
		t.Fatal(err)
	}
	objects := manifests(t, "cert-manager", text, "Issuer", "Certificate")
	for _, kind := range []string{"Role", "ClusterRole", "Secret"} {
		if objects[kind] != nil {
			t.Errorf("there is a %s, and cert-manager does its work", kind)
		}
	}
}

// A second revision has objects with names of its own, and serves only namespaces that select it.
// The installation without a revision serves namespaces that select none.
func TestWebhookOfARevision(t *testing.T) {
	w := usual()
	w.Revision, w.OptIn, w.FailurePolicy, w.NoNamespace = "v2", true, "Ignore", true
	text, err := w.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "kind: Namespace") {
		t.Error("the namespace is printed")
	}
	objects := manifests(t, "revision", text)
	hook := objects["MutatingWebhookConfiguration"].(*admissionv1.MutatingWebhookConfiguration)
	if hook.Name != "stager-webhook-v2" || *hook.Webhooks[0].FailurePolicy != admissionv1.Ignore {
		t.Errorf("the webhook = %+v", hook)
	}
	plain, err := usual().YAML()
	if err != nil {
		t.Fatal(err)
	}
	first := manifests(t, "webhook", plain)["MutatingWebhookConfiguration"].(*admissionv1.MutatingWebhookConfiguration)
	for _, tt := range []struct {
		labels        map[string]string
		first, second bool // which of the revisions serves it
	}{
		{nil, true, false},
		{map[string]string{LabelRevision: "v2"}, false, false}, // does not opt in
		{map[string]string{LabelRevision: "v2", LabelNamespace: "enabled"}, false, true},
		{map[string]string{LabelRevision: "v3", LabelNamespace: "enabled"}, false, false},
		{map[string]string{LabelNamespace: "enabled"}, true, false},
	} {
		for i, hook := range []*admissionv1.MutatingWebhookConfiguration{first, hook} {
			selector, err := metav1.LabelSelectorAsSelector(hook.Webhooks[0].NamespaceSelector)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := selector.Matches(labels.Set(tt.labels)), []bool{tt.first, tt.second}[i]; got != want {
				t.Errorf("%s serves a namespace with the labels %v: %v, want %v", hook.Name, tt.labels, got, want)
			}
		}
	}
}

func TestRBACIsAPartOfTheWebhook(t *testing.T) {
	rbac, err := usual().RBAC()
	if err != nil {
		t.Fatal(err)
	}
	all, err := usual().YAML()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(all), string(rbac)) {
		t.Errorf("the rights alone are others:\n%s", rbac)
	}
}

// Names and values from users are quoted, whatever they contain.
func TestValuesAreQuoted(t *testing.T) {
	w := usual()
	w.Image = "a: b\n  c: \"d\" # e"
	text, err := w.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range yamledit.Split(text) {
		var deployment appsv1.Deployment
		if yaml.Unmarshal(d.Text, &deployment) == nil && deployment.Kind == "Deployment" {
			if got := deployment.Spec.Template.Spec.Containers[0].Image; got != w.Image {
				t.Errorf("image = %q, want %q", got, w.Image)
			}
			return
		}
	}
	t.Error("there is no Deployment")
}

const plan = `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: imagenet}
spec:
  inputs:
  - {name: train, source: "s3://b/train/", path: /data/train, mode: window, window: {size: 1Gi}}
  - {name: code, source: "s3://b/code/", path: /code, credentials: {secret: s3}}
  outputs:
  - {name: ckpt, path: /out, destination: "s3://b/runs/{job}/{index}/"}
`

func TestPolicy(t *testing.T) {
	text, warnings, err := Policy("imagenet", []byte(plan), jobspec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 3 || !strings.Contains(warnings[0], "outputs can be lost") || !strings.Contains(warnings[1], "the user of container main is not known") || !strings.Contains(warnings[2], jobspec.AnnotationCount) {
		t.Errorf("warnings = %q, want three: what can be lost, what is not readable, and that how many pods there are is not known", warnings)
	}
	policy := manifests(t, "policy", text)["MutatingAdmissionPolicy"].(*admissionv1.MutatingAdmissionPolicy)
	if got := policy.Spec.MatchConstraints.ObjectSelector.MatchLabels["stager.dev/plan"]; got != "imagenet" {
		t.Errorf("the label = %q, want imagenet", got)
	}
	if _, _, err := Policy("x", []byte(plan), jobspec.Options{Finalize: jobspec.FinalizeWrap}); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("wrap: %v, want a refusal that names the webhook", err)
	}
	if _, _, err := Policy("x", []byte("kind: x"), jobspec.Options{}); err == nil {
		t.Error("a bad plan was taken")
	}
}
