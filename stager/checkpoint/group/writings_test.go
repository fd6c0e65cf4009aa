package group

import (
	"strings"
	"testing"
)

func TestWritingsCountRewritesOnly(t *testing.T) {
	l := Local{View: "v", Step: 7}
	var w Writings
	for _, tt := range []struct {
		what            string
		print           string
		extends, signed bool
		want, kept      int
	}{
		{"half of the first writing, without a sign", "half", false, false, 1, 0},
		{"the first writing", "a", false, true, 1, 1},
		{"the same once more", "a", false, true, 1, 1},
		{"a file was added", "a+", true, true, 1, 1},
		{"half of the second writing, without a sign", "b/2", false, false, 2, 1},
		{"the second writing", "b", false, true, 2, 2},
		{"the bytes of the first one", "a", false, true, 3, 3},
	} {
		got := w.Number(l, tt.print, tt.extends, 1)
		if tt.signed {
			l.Writing = got
			w, _ = w.Note(l, tt.print)
		}
		if kept := w.At("v", 0, 7); got != tt.want || kept != tt.kept {
			t.Errorf("%s: got writing %d, and %d kept, want %d, %d", tt.what, got, kept, tt.want, tt.kept)
		}
	}
	if got := w.Number(Local{View: "v", Round: 1, Step: 7}, "c", false, 1); got != 1 {
		t.Errorf("after a restore: got writing %d, want 1", got)
	}
	if got := w.Number(Local{View: "v", Step: 8}, "c", false, 4); got != 4 {
		t.Errorf("a step of which writing 4 was announced: got writing %d, want 4", got)
	}
	for step := range int64(2 * maxWritings) {
		w, _ = w.Note(Local{View: "v", Step: step, Writing: 1}, "c")
	}
	if len(w) != maxWritings || w.At("v", 0, 2*maxWritings-1) != 1 {
		t.Errorf("got %d steps, want the last %d", len(w), maxWritings)
	}
}

// If nodes cannot distinguish two writings, these may form one COMMIT, as documented. An
// exploration finds this.
func TestWritingsThatNodesCannotTellApart(t *testing.T) {
	for name, sc := range map[string]scenario{
		"a node missed a writing":                  {n: 2, saves: []int64{1, 1}, mode: "each", misses: true},
		"a node has no sign, and reads it late":    {n: 2, saves: []int64{1, 1}, mode: "job"},
		"two of three nodes have no sign, as well": {n: 3, saves: []int64{1, 1}, mode: "job"},
	} {
		t.Run(name, func(t *testing.T) {
			r := explore(&sc, 100_000)
			if !strings.Contains(r.bad, "COMMIT mixes") {
				t.Errorf("got %q after %d states (cut %v): what the documentation calls unknown is known", r.bad, r.states, r.cut)
			}
			t.Logf("after %d states: %v", r.states, r)
		})
	}
}
