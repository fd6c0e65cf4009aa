package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManifests asks the API server for all that stager generates in its golden files,
// and for the examples with stager in them, whether it would take them; fields that it
// does not know are errors.
func TestManifests(t *testing.T) {
	c := asked(t, apiServer)
	c.define(t)
	for _, namespace := range []string{"ml", "team"} { // of some golden files
		c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: `+namespace+`}}`)
	}
	golden := find(t, 9, "../../stager/jobspec/testdata/golden/*.out.*", "../../stager/jobspec/testdata/golden/fanout.yaml", "../../stager/jobspec/pai/testdata/*.out.yaml")
	for _, file := range golden {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c.takes(t, read(t, file))
		})
	}
	for _, file := range find(t, 10, "../../examples/*.*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			switch {
			case strings.HasSuffix(file, ".plan.yaml"):
				const pod = `{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: main, image: trainer}]}}`
				c.takes(t, c.inject(t, pod, "--plan", file))
			case strings.HasSuffix(file, ".prices.yaml"): // no cluster's business
			case strings.HasSuffix(file, ".pai.yaml"):
				c.takes(t, c.stager(t, "", "pai", "convert", "-q", "--user", "me", "--storage", "digits=s3://datasets/digits", file))
			case filepath.Ext(file) == ".yaml":
				c.takes(t, c.inject(t, read(t, file)))
			case filepath.Ext(file) == ".jsonc":
				c.takes(t, c.stager(t, "", "pai", "convert", "-q", "--default-fs", "hdfs://namenode:8020", "--user", "me", file))
			case filepath.Base(file) != "README.md":
				t.Error("nobody knows what to ask the API server about it")
			}
		})
	}
}

// An API server that takes everything would show nothing, nor would a search that
// finds no pods.
func TestManifestsCanBeRefused(t *testing.T) {
	c := asked(t, apiServer)
	c.define(t)
	const wrong = `{containers: [{name: c, image: i, restartPolice: Always}]}`
	for name, manifest := range map[string]string{
		"a pod":                  `{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: ` + wrong + `}`,
		"a field of a JobSet":    `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}, spec: {replicatedJobs: [], suspended: true}}`,
		"an operator of its own": `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}, spec: {replicatedJobs: [], successPolicy: {operator: Most}}}`,
	} {
		if out, err := c.kubectl(t.Context(), manifest, "create", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
			t.Errorf("%s with a fault was taken: %s", name, out)
		}
	}
	// What is wrong deep in a kind of others is seen by taking it out of there.
	const deep = `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}, spec: {replicatedJobs: [{name: w, template: {spec: {template: {spec: ` + wrong + `}}}}]}}`
	for _, o := range c.creates(t, deep) {
		inner := templatesIn(o, "")
		if len(inner) != 2 {
			t.Errorf("%d templates were found in it, want a Job and a Pod: %q", len(inner), inner)
		}
		for _, manifest := range inner {
			if out, err := c.kubectl(t.Context(), manifest, "create", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
				t.Errorf("a template with a fault was taken: %s\n%s", out, manifest)
			}
		}
	}
}

// find are the files that patterns name, so many at least: none are no test.
func find(t *testing.T, least int, patterns ...string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < least {
		t.Fatalf("%q has %d files, want %d; where did they go?", patterns, len(all), least)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
