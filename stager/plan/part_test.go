package plan

import (
	"slices"
	"testing"
)

// An init container and a sidecar divide a plan: nothing is done twice, and nothing is omitted.
func TestPart(t *testing.T) {
	p, err := Parse([]byte(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: x}
spec:
  volumes: [{name: ram, size: 1Gi, medium: memory}]
  inputs:
  - {name: whole, source: "s3://b/a/", path: /a, volume: ram}
  - {name: bounded, source: "s3://b/b/", path: /b, volume: ram, maxBytes: 1Mi}
  - {name: moving, source: "s3://b/c/", path: /c, mode: window, window: {size: 1Gi}}
  outputs: [{name: out, path: /out, destination: "s3://b/out/", volume: ram}]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string][]string{
		PartAll:      {"whole", "bounded", "moving", "out"},
		PartPrefetch: {"whole", "bounded", "moving"}, // only its source is checked
		PartRest:     {"moving", "out"},
	} {
		var got []string
		some := p.Part(part)
		for _, in := range some.Spec.Inputs {
			got = append(got, in.Name)
		}
		for _, out := range some.Spec.Outputs {
			got = append(got, out.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("part %s has %v, want %v", part, got, want)
		}
	}
	// A pod that exceeds a volume's limit is evicted, so the limit applies.
	for i, want := range []Bytes{1 << 30, 1 << 20, 0} {
		if in := p.Spec.Inputs[i]; in.MaxBytes != want {
			t.Errorf("input %s takes at most %s, want %s", in.Name, in.MaxBytes, want)
		}
	}
}
