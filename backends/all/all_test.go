package all_test

import (
	"testing"

	"github.com/stager-dev/stager/backends/all"
)

func TestExamplesAreValid(t *testing.T) {
	r := all.Registry()
	if len(r.Schemes()) == 0 {
		t.Fatal("no protocol is registered")
	}
	for _, s := range r.Schemes() {
		if err := r.Check(s.Example); err != nil {
			t.Errorf("%s: the example %q is refused: %v", s.Name, s.Example, err)
		}
		if s.Summary == "" || s.Credentials == "" || s.Open == nil {
			t.Errorf("%s lacks a summary, a word of credentials or Open", s.Name)
		}
	}
}
