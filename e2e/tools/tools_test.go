package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/cluster"
)

const job = `# a comment that goes
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      terminationGracePeriodSeconds: 60
      restartPolicy: Never
      containers:
      - name: main
        image: trainer
        command: [python, "train.py"]
        env: []
`

const stagePlan = `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata:
  name: imagenet
ANNOTATIONS
spec:
  inputs:
  - {name: train, source: s3://b/train/, path: /data/train}
  outputs:
  - {name: ckpt, path: /out, destination: s3://b/runs/}
`

// planOf is the plan with the annotation by which kustomize finds its function; "" is none.
func planOf(function string) string {
	if function == "" {
		return strings.Replace(stagePlan, "ANNOTATIONS\n", "", 1)
	}
	return strings.Replace(stagePlan, "ANNOTATIONS", "  annotations: {config.kubernetes.io/function: '"+function+"'}", 1)
}

// injected checks that a program put stager into the job, and that the job as it was comes
// out of what the program wrote.
func injected(t *testing.T, out string) {
	t.Helper()
	if !strings.Contains(out, "name: stager-prefetch") || !strings.Contains(out, "/run/stager-bin/stager") {
		t.Fatalf("stager is not in it:\n%s", out)
	}
	back, err := run(t, t.TempDir(), out, filepath.Join(bin, "stager"), "uninject", "-q", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	got, want := object(t, back), object(t, job)
	if metadata, ok := got["metadata"].(map[string]any); ok {
		delete(metadata, "annotations") // kpt's own
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("uninjected it is\n%s\nwant\n%s", back, job)
	}
}

func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return o
}

// By the name stager-krm the function needs no argument, which kustomize 5.5 does not take.
func TestKustomize(t *testing.T) {
	for _, tt := range []struct{ program, function, refused string }{
		{"kustomize-5.5", "exec: {path: stager-krm}", ""},
		{"kustomize-5.5", "exec: {path: stager, args: [krm]}", `unknown field "args"`},
		{"kustomize", "exec: {path: stager-krm}", ""},
		{"kustomize", "exec: {path: stager, args: [krm]}", ""},
	} {
		t.Run(tt.program+" "+tt.function, func(t *testing.T) {
			kustomize := program(t, tt.program)
			dir := files(t, map[string]string{
				"job.yaml": job, "plan.yaml": planOf(tt.function),
				"kustomization.yaml": "resources: [job.yaml]\ntransformers: [plan.yaml]\n",
			})
			out, err := run(t, dir, "", kustomize, "build", "--enable-alpha-plugins", "--enable-exec", ".")
			switch {
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("got %v, want it refused with %s: the manual says so", err, tt.refused)
			case tt.refused == "" && err != nil:
				t.Error(err)
			case tt.refused == "":
				injected(t, out)
			}
		})
	}
}

// kubectl's kustomize runs no program: what it builds is piped through inject.
func TestKubectl(t *testing.T) {
	mayBuild(t, "kubectl")
	kubectl, err := cluster.Kubectl(t.Context(), "../cluster/modules", os.Stderr)
	live.Require(t, "tools", err)
	dir := files(t, map[string]string{
		"job.yaml": job, "plan.yaml": planOf(""), "kustomization.yaml": "resources: [job.yaml]\n",
	})
	out, err := run(t, dir, "", "sh", "-c", kubectl+" kustomize . | stager inject -q --plan plan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	injected(t, out)
	if _, err := run(t, dir, "", kubectl, "kustomize", "--enable-exec", "."); err == nil || !strings.Contains(err.Error(), "unknown flag: --enable-exec") {
		t.Errorf("kubectl kustomize --enable-exec: got %v, want it refused: the manual says so", err)
	}
	// What kubectl writes anew, as of an object that it was given.
	if out, err = run(t, dir, out, kubectl, "annotate", "--local", "-o", "yaml", "-f", "-", "note=x"); err != nil {
		t.Fatal(err)
	}
	injected(t, out)
	if _, err := run(t, dir, out, filepath.Join(bin, "stager"), "inject", "-q", "--check", "-f", "-", "--plan", "plan.yaml"); err != nil {
		t.Errorf("it is out of date: %v", err)
	}
}

func TestKpt(t *testing.T) {
	kpt, err := exec.LookPath("kpt") // its module lacks a part, so it cannot be built from there
	live.Require(t, "kpt", err)
	dir := files(t, map[string]string{"pkg/job.yaml": job, "plan.yaml": planOf("")})
	if _, err := run(t, dir, "", kpt, "fn", "eval", "pkg", "--exec", "stager krm", "--fn-config", "plan.yaml"); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(filepath.Join(dir, "pkg", "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	injected(t, string(out))
}

// plugin is what Helm 4 runs, as examples/helm has it.
func plugin(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/helm/plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestHelm(t *testing.T) {
	chart := map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 0.1.0\n", "chart/templates/job.yaml": job,
		"plan.yaml": planOf(""),
	}
	t.Run("3", func(t *testing.T) {
		helm := program(t, "helm-3")
		out, err := run(t, files(t, chart), "", helm, "template", "train", "chart", "--post-renderer", "stager",
			"--post-renderer-args", "inject", "--post-renderer-args", "--plan=plan.yaml")
		if err != nil {
			t.Fatal(err)
		}
		injected(t, out)
	})
	t.Run("4", func(t *testing.T) {
		helm := program(t, "helm-4")
		chart["plugin/plugin.yaml"] = plugin(t)
		dir := files(t, chart)
		if _, err := run(t, dir, "", helm, "plugin", "install", "plugin"); err != nil {
			t.Fatal(err)
		}
		out, err := run(t, dir, "", helm, "template", "train", "chart", "--post-renderer", "stager", "--post-renderer-args", "--plan="+filepath.Join(dir, "plan.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		injected(t, out)
	})
}
