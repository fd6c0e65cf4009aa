package window

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/window/disk"
)

// The set has the positions that were added to it, in as few ranges as there are gaps.
func TestSpansAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 20
		position := rapid.IntRange(0, n-1)
		var s spans
		var want [n + 1]bool
		for range rapid.IntRange(0, 20).Draw(t, "ranges") {
			first := position.Draw(t, "first")
			last := min(first+rapid.IntRange(0, 5).Draw(t, "more"), n-1)
			s = s.add(first, last)
			for pos := first; pos <= last; pos++ {
				want[pos] = true
			}
		}
		checkSpans(t, s, want[:])
		out := rapid.SliceOfDistinct(position, rapid.ID[int]).Draw(t, "out")
		slices.Sort(out)
		before := slices.Clone(s)
		rest := s.without(out)
		if !slices.Equal(s, before) {
			t.Fatalf("without changed %v to %v", before, s)
		}
		for _, pos := range out {
			want[pos] = false
		}
		checkSpans(t, rest, want[:])
	})
}

func checkSpans(t *rapid.T, s spans, want []bool) {
	t.Helper()
	gaps := 0
	for pos, in := range want {
		after := pos
		for after < len(want) && want[after] {
			after++
		}
		if s.has(pos) != in || s.after(pos) != after {
			t.Fatalf("%v has %d: %v, and %d is after it; want %v, %d", s, pos, s.has(pos), s.after(pos), in, after)
		}
		if in && !want[pos+1] {
			gaps++
		}
	}
	if len(s) != gaps {
		t.Fatalf("got %d ranges %v, want %d", len(s), s, gaps)
	}
}

// A window that continued at a cursor had an entry for each finished position: at nine of ten million
// shards it took 1.2 GB, and was killed at its memory limit before it delivered anything.
func TestFinishedPositionsTakeNoMemory(t *testing.T) {
	const few, many = 1_000, 1_000_000
	for name, finished := range map[string]func(n int) []Span{
		"all but the last":           func(n int) []Span { return []Span{{0, n - 10}} },
		"the first was skipped":      func(n int) []Span { return []Span{{12, n - 10}} },
		"one of the first is missed": func(n int) []Span { return []Span{{0, 11}, {24, n - 10}} },
	} {
		for _, nodes := range []int{1, 4} {
			if of := resumed(t, many, nodes, finished) - resumed(t, few, nodes, finished); of > many/4 {
				t.Errorf("%s, %d nodes: %d finished positions took %d bytes", name, nodes, many, of)
			}
		}
	}
}

// resumed returns how many bytes a node's window of n items allocates that continues at a cursor.
func resumed(t *testing.T, n, nodes int, finished func(n int) []Span) int64 {
	t.Helper()
	cfg := Config{Input: "train", Dir: t.TempDir(), Size: 1 << 20, Epochs: 1, Manifest: "m", Part: "0", Items: sameItems(n), Fetcher: &fake{}, unsynced: true}
	cfg.Owns = func(pos int) bool { return pos%nodes == 0 }
	text, err := json.Marshal(Cursor{Manifest: cfg.Manifest, Part: cfg.Part, Finished: map[int][]Span{0: finished(n)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, disk.Private), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, cursorName), text, 0o644); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, c := w.Status(), w.Cursor()
	runtime.ReadMemStats(&after)
	order := w.own(Sequence(n))
	want := spans(finished(n)).of(order)
	own := 0
	for pos := range positions(order) {
		if c.has(seq{0, pos}) {
			own++
		}
	}
	if !slices.Equal(c.Finished[0], want) || s.Finished != own {
		t.Errorf("got %d finished positions and the cursor %v, want %d and %v", s.Finished, c.Finished[0], own, want)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// sameItems is that many items that allocate nothing.
type sameItems int

func (n sameItems) Len() int               { return int(n) }
func (n sameItems) Item(int) (Item, error) { return Item{Name: "shard", Size: 10}, nil }
