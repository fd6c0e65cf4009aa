package jobspec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stager-dev/stager/stager/internal/golden"
)

// goldenOptions are the options of golden files by name. Other files have none.
var goldenOptions = map[string]Options{
	"job-adjust.in.yaml":    {AdjustMemory: true, JobPolicies: true},
	"pod.in.json":           {Image: "registry.example/stager:1", ImagePullPolicy: "Always", Listen: ":9090"},
	"pod-admission.in.json": {Admission: true, ConfigMap: inCluster},
	"pod-argo.in.json":      {Admission: true},
}

// inCluster returns a ConfigMap that is in no file.
func inCluster(namespace, name string) ([]byte, bool) {
	return []byte(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: imagenet}
spec:
  inputs: [{name: train, source: s3://b/train/, path: /data/train, mode: window, window: {size: 60Gi}}]
`), namespace == "ml" && name == "imagenet"
}

// Each input in testdata/golden is injected to the output next to it.
func TestGolden(t *testing.T) {
	files, _ := filepath.Glob("testdata/golden/*.in.*")
	if len(files) == 0 {
		t.Fatal("no golden files")
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			in, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			result, err := Inject(in, goldenOptions[name])
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, strings.Replace(file, ".in.", ".out.", 1), result.Output)
			holds(t, in, goldenOptions[name])
			decodes(t, result.Output)
		})
	}
}

// holds checks the guarantees that apply to every file.
func holds(t *testing.T, x []byte, opts Options) {
	t.Helper()
	once, err := Inject(x, opts)
	if err != nil {
		return
	}
	if opts.Admission {
		opts.Admission = false // otherwise it would be left alone
	}
	twice, err := Inject(once.Output, opts)
	if err != nil {
		t.Fatalf("the injected file is refused: %v\n%s", err, once.Output)
	}
	if diff := cmp.Diff(string(once.Output), string(twice.Output)); diff != "" {
		t.Errorf("injected twice it is another: %s", diff)
	}
	back, err := Uninject(once.Output)
	if err != nil {
		t.Fatalf("the injected file cannot be uninjected: %v\n%s", err, once.Output)
	}
	before, err := Uninject(x) // the input may be an injected file
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before.Output), string(back.Output)); diff != "" {
		t.Errorf("uninjected it is another: %s", diff)
	}
}
