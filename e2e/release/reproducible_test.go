package release

import (
	"testing"
	"time"
)

// A map's order is another one each time, so that one of 10 rounds would differ.
func TestPackagesAreTheSameEachTime(t *testing.T) {
	var first string
	for i := range 10 {
		r := &release{
			Options: Options{Source: "../..", Version: "0.1.0", Commit: "abc", Date: time.Unix(1780000000, 0), Platforms: Platforms}, dir: t.TempDir(),
			license: []byte("license"), notices: []byte("notices"),
			completions: map[string][]byte{"bash": []byte("b"), "fish": []byte("f"), "zsh": []byte("z")},
			manual:      map[string][]byte{"stager.1": []byte("1"), "stager-ls.1": []byte("2"), "stager-run.1": []byte("3")},
		}
		modules := []module{{Path: "example.com/a", Version: "v1.0.0", Licenses: []license{{Name: "LICENSE", ID: "MIT"}}}}
		if err := r.sbom(modules); err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Platforms {
			if err := r.archive(p, []byte("binary")); err != nil {
				t.Fatal(err)
			}
			if p.System != "linux" {
				continue
			}
			for _, write := range []func(string, []byte) error{r.deb, r.rpm, r.wheel} {
				if err := write(p.Arch, []byte("binary")); err != nil {
					t.Fatal(err)
				}
			}
		}
		sums, err := r.sumsOf(func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = sums
		} else if sums != first {
			t.Fatalf("round %d: got\n%s, want\n%s", i, sums, first)
		}
	}
}
