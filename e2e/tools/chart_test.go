package tools

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

const chart = "../../deploy/helm/stager"

// helm returns a Helm that renders the chart.
func helm(t *testing.T) string {
	t.Helper()
	path, err := servers.Program("helm-4")
	live.Require(t, "helm", err)
	return path
}

// objects returns the objects of a text by their kind and name.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	found := make(map[string]map[string]any)
	for _, document := range strings.Split("\n"+text, "\n---") {
		o := object(t, document)
		if o == nil {
			continue
		}
		name, _ := o["metadata"].(map[string]any)["name"].(string)
		kind, _ := o["kind"].(string)
		found[kind+"/"+name] = o
	}
	return found
}

// rendered returns what the chart makes of values.
func rendered(t *testing.T, values ...string) map[string]map[string]any {
	t.Helper()
	args := []string{helm(t), "template", "stager", chartDir(t), "--namespace", "stager", "--skip-tests"}
	for _, v := range values {
		args = append(args, "--set-json", v)
	}
	out, err := run(t, t.TempDir(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, out)
}

func chartDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

const repository = `image={"repository":"registry.example.com/stager","tag":"1"}`

// The chart and "stager manifests webhook" install the same objects.
func TestChartEqualsManifests(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []string
		flags  string
	}{
		{"defaults", nil, ""},
		{"cert-manager", []string{"certManager=true"}, "--cert-manager"},
		{"a revision that namespaces select", []string{`revision="v2"`, "optIn=true"}, "--revision v2 --opt-in"},
		{"least permissions", []string{`read={"configMaps":false,"owners":false,"namespaces":false}`, `failurePolicy="Ignore"`, "replicas=3"}, "--no-config-maps --no-owners --no-namespaces --failure-policy Ignore --replicas 3"},
		{"no permissions in the cluster", []string{`read={"configMaps":false,"owners":false,"namespaces":false}`, "certManager=true"}, "--no-config-maps --no-owners --no-namespaces --cert-manager"},
		{
			"every option of injection",
			[]string{
				`image={"repository":"registry.example.com/stager","tag":"1","pullPolicy":"Always"}`,
				`injection={"podListen":":9090","finalize":"wrap","gate":"none","podSecurity":"restricted","kubernetes":"1.31","adjustMemory":true,"containerEnv":{"HTTPS_PROXY":"http://proxy:3128","A":"b, c"}}`,
			},
			"--image-pull-policy Always --pod-listen :9090 --finalize wrap --gate none --pod-security restricted --kubernetes 1.31 --adjust-memory --container-env HTTPS_PROXY=http://proxy:3128 --container-env A=b,_c",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := rendered(t, append([]string{repository}, tt.values...)...)
			words := append([]string{filepath.Join(bin, "stager"), "manifests", "webhook", "--no-create-namespace", "--image", "registry.example.com/stager:1"}, strings.Fields(tt.flags)...)
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "b,_c", "b, c")
			}
			out, err := run(t, t.TempDir(), "", words...)
			if err != nil {
				t.Fatal(err)
			}
			want := objects(t, out)
			if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
				t.Fatalf("got %q, want %q", g, w)
			}
			for name, object := range want {
				if !reflect.DeepEqual(got[name], object) {
					g, _ := yaml.Marshal(got[name]) // came from YAML
					w, _ := yaml.Marshal(object)
					t.Errorf("%s: got\n%s\nwant\n%s", name, g, w)
				}
			}
		})
	}
}

// What only the chart has is where it belongs.
func TestChartPlacesItsOwnValues(t *testing.T) {
	got := rendered(
		t, `image={"repository":"registry.example.com/stager","digest":"sha256:`+strings.Repeat("0a", 32)+`"}`,
		`priorityClassName="system-cluster-critical"`, `tolerations=[{"key":"gpu","operator":"Exists"}]`, `nodeSelector={"pool":"system"}`,
		`namespaceSelector=[{"key":"team","operator":"In","values":["vision"]}]`, `podDisruptionBudget={"maxUnavailable":null,"minAvailable":1}`,
		`networkPolicy={"enabled":true}`, `podMonitor={"enabled":true,"labels":{"release":"prometheus"}}`, `imagePullSecrets=[{"name":"registry"}]`,
	)
	for _, tt := range []struct {
		object string
		path   string
		want   any
	}{
		{"Deployment/stager-webhook", "spec.template.spec.priorityClassName", "system-cluster-critical"},
		{"Deployment/stager-webhook", "spec.template.spec.tolerations", []any{map[string]any{"key": "gpu", "operator": "Exists"}}},
		{"Deployment/stager-webhook", "spec.template.spec.nodeSelector", map[string]any{"pool": "system"}},
		{"Deployment/stager-webhook", "spec.template.spec.imagePullSecrets", []any{map[string]any{"name": "registry"}}},
		{"PodDisruptionBudget/stager-webhook", "spec.minAvailable", float64(1)},
		{"PodDisruptionBudget/stager-webhook", "spec.maxUnavailable", nil},
		{"NetworkPolicy/stager-webhook", "spec.policyTypes", []any{"Ingress", "Egress"}},
		{"PodMonitor/stager-webhook", "metadata.labels", map[string]any{"release": "prometheus"}},
	} {
		var at any = got[tt.object]
		for _, key := range strings.Split(tt.path, ".") {
			at, _ = at.(map[string]any)[key]
		}
		if !reflect.DeepEqual(at, tt.want) {
			t.Errorf("%s %s: got %v, want %v", tt.object, tt.path, at, tt.want)
		}
	}
	deployment, _ := yaml.Marshal(got["Deployment/stager-webhook"]) // came from YAML
	if image := "registry.example.com/stager@sha256:" + strings.Repeat("0a", 32); strings.Count(string(deployment), image) != 2 {
		t.Errorf("got\n%s\nwant the image %s, of the webhook and of the pods", deployment, image)
	}
	selector := map[string]any{"key": "team", "operator": "In", "values": []any{"vision"}}
	hook, _ := got["MutatingWebhookConfiguration/stager-webhook"]["webhooks"].([]any)[0].(map[string]any)
	binding, _ := got["ValidatingAdmissionPolicyBinding/stager-webhook"]["spec"].(map[string]any)["matchResources"].(map[string]any)
	for name, of := range map[string]map[string]any{"webhook": hook, "warnings": binding} {
		namespaces, _ := of["namespaceSelector"].(map[string]any)["matchExpressions"].([]any)
		if len(namespaces) != 3 || !reflect.DeepEqual(namespaces[2], any(selector)) {
			t.Errorf("%s selects namespaces by %v, want %v as the last", name, namespaces, selector)
		}
	}
}

func TestChartRefusesBadValues(t *testing.T) {
	for _, tt := range []struct{ values, want string }{
		{`replicas=2`, "set image.repository to the full name of stager's image"},
		{`replicas=0`, "replicas"},
		{`replicas="two"`, "replicas"},
		{`failurePolicy="fail"`, "failurePolicy"},
		{`image={"repository":"r.example.com/s","digest":"0a"}`, "digest"},
		{`image={"repository":"r.example.com/s","pullPolicy":"Sometimes"}`, "pullPolicy"},
		{`injection={"gate":"later"}`, "gate"},
		{`injection={"podListen":"9090"}`, "podListen"},
		{`injection={"podlisten":":9090"}`, "podlisten"},
		{`certmanager=true`, "certmanager"},
		{`name="Stager"`, "name"},
		{`podDisruptionBudget={"minAvailable":1}`, "podDisruptionBudget"},
		{`networkPolicy={"enabled":"yes"}`, "enabled"},
	} {
		t.Run(tt.values, func(t *testing.T) {
			out, err := run(t, t.TempDir(), "", helm(t), "template", "stager", chartDir(t), "--set-json", tt.values)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\n%s\nwant an error about %s", err, out, tt.want)
			}
		})
	}
}

func TestChartPassesLint(t *testing.T) {
	out, err := run(t, t.TempDir(), "", helm(t), "lint", "--strict", chartDir(t), "--set-json", repository)
	if err != nil {
		t.Error(err)
	}
	t.Log(out)
}
