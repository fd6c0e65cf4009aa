package cluster

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestManifests asks the API server for all that stager generates in its golden files,
// and for the examples with stager in them, whether it would take them; fields that it
// does not know are errors.
func TestManifests(t *testing.T) {
	c := asked(t)
	c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: ml}}`) // of some golden files
	golden, err := filepath.Glob("../../stager/jobspec/testdata/golden/*.out.*")
	if err != nil {
		t.Fatal(err)
	}
	if len(golden) == 0 {
		t.Fatal("there are no golden files; where did they go?")
	}
	golden = append(golden, "../../stager/jobspec/pai/testdata/single.out.yaml")
	for _, file := range golden {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if _, err := c.kubectl(t.Context(), "", "create", "--dry-run=server", "--validate=strict", "-f", file); err != nil {
				t.Error(err)
			}
		})
	}
	// An API server that takes everything would show nothing.
	t.Run("wrong", func(t *testing.T) {
		const wrong = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i, restartPolice: Always}]}}`
		if out, err := c.kubectl(t.Context(), wrong, "create", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
			t.Errorf("an unknown field was taken: %s", out)
		}
	})
	examples, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range examples {
		t.Run(filepath.Base(file), func(t *testing.T) {
			injected, err := output(exec.CommandContext(t.Context(), filepath.Join(c.bin, "stager"), "inject", "-q", "-f", file))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.kubectl(t.Context(), injected, "create", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
				t.Error(err)
			}
		})
	}
}
