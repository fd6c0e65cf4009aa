package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// published are the projects whose modules have the definitions of their kinds.
var published = []struct{ module, files string }{
	{"github.com/kubeflow/training-operator@v1.8.1", "manifests/base/crds/kubeflow.org_*.yaml"},
	{"github.com/kubeflow/trainer/v2@v2.0.0", "manifests/base/crds/trainer.kubeflow.org_*.yaml"},
	{"github.com/ray-project/kuberay/ray-operator@v1.5.0", "config/crd/bases/ray.io_*.yaml"},
	{"knative.dev/serving@v0.51.0", "config/core/300-resources/service.yaml"},
	{"knative.dev/serving@v0.51.0", "config/core/300-resources/configuration.yaml"},
	{"sigs.k8s.io/jobset@v0.10.1", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"},
}

// own are Kubernetes' own types of the examples.
var own = map[string]func() any{
	"v1 Pod":              func() any { return new(corev1.Pod) },
	"batch/v1 Job":        func() any { return new(batchv1.Job) },
	"batch/v1 CronJob":    func() any { return new(batchv1.CronJob) },
	"apps/v1 Deployment":  func() any { return new(appsv1.Deployment) },
	"apps/v1 StatefulSet": func() any { return new(appsv1.StatefulSet) },
	"apps/v1 DaemonSet":   func() any { return new(appsv1.DaemonSet) },
	"apps/v1 ReplicaSet":  func() any { return new(appsv1.ReplicaSet) },
}

// TestKindsAreAsTheirProjectsSay injects the examples of all kinds, and decodes what comes
// strictly by the schemas that the projects publish, or where no module has them by those of
// testdata, which are written after their documentation.
func TestKindsAreAsTheirProjectsSay(t *testing.T) {
	files, err := filepath.Glob("../../examples/kinds/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("there are %d examples, %v", len(files), err)
	}
	schemas := make(map[string]*schema)
	read(t, schemas, "testdata/*.yaml")
	why := make(map[string]error) // by group
	for _, p := range published {
		dir, err := download(p.module)
		if err != nil {
			why[groupOf(p.files)] = err
			continue
		}
		read(t, schemas, filepath.Join(dir, p.files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, err := jobspec.Inject(text, jobspec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range yamledit.Split(result.Output) {
			var o map[string]any
			if err := yaml.Unmarshal(d.Text, &o); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprint(o["apiVersion"], " ", o["kind"])
			t.Run(name, func(t *testing.T) {
				if !bytes.Contains(d.Text, []byte("name: stager-prefetch")) {
					t.Errorf("it is not injected:\n%s", d.Text)
				}
				if into := own[name]; into != nil {
					if err := yaml.UnmarshalStrict(d.Text, into()); err != nil {
						t.Error(err)
					}
					return
				}
				group, _, _ := strings.Cut(name, "/")
				live.Require(t, "schemas", why[group])
				if schemas[name] == nil {
					t.Fatal("no schema has it")
				}
				for _, fault := range schemas[name].check("", o) {
					t.Error(fault)
				}
			})
		}
	}
}

// groupOf is the API group of a project's files.
func groupOf(files string) string {
	if base := filepath.Base(files); strings.Contains(base, "_") {
		return strings.Split(base, "_")[0]
	}
	return "serving.knative.dev"
}

// read adds the schemas of all definitions in files.
func read(t *testing.T, schemas map[string]*schema, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files, %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range yamledit.Split(text) {
			var def definition
			if err := yaml.Unmarshal(d.Text, &def); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, v := range def.Spec.Versions {
				schemas[fmt.Sprintf("%s/%s %s", def.Spec.Group, v.Name, def.Spec.Names.Kind)] = v.Schema.OpenAPIV3Schema
			}
		}
	}
}

// download returns the directory of a module's source, which the go command keeps.
func download(module string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	var m struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &m); jerr != nil || m.Error != "" || m.Dir == "" {
		return "", fmt.Errorf("%s cannot be fetched: %s %w", module, m.Error, err)
	}
	return m.Dir, nil
}
