package plan_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/plan"
)

func TestFilterMatches(t *testing.T) {
	for _, tt := range []struct {
		include, exclude string
		key              string
		want             bool
	}{
		{"", "", "any/thing", true},
		{"*.tar", "", "a.tar", true},
		{"*.tar", "", "deep/down/a.tar", true},
		{"*.tar", "", "a.tar.gz", false},
		{"train/*.tar", "", "train/a.tar", true},
		{"train/*.tar", "", "train/x/a.tar", false},
		{"train/*.tar", "", "x/train/a.tar", false},
		{"train/**/*.tar", "", "train/a.tar", true},
		{"train/**/*.tar", "", "train/x/y/a.tar", true},
		{"**/val/*", "", "x/val/1", true},
		{"/README", "", "README", true},
		{"/README", "", "x/README", false},
		{"logs/", "", "logs/x/y", true},
		{"logs/", "", "logs", false},
		{"logs/", "", "x/logs/y", false},
		{"*.{tar,idx}", "", "x/a.idx", true},
		{"*.tar,*.idx", "", "a.idx", true},
		{"shard-[0-9].tar", "", "shard-7.tar", true},
		{`\*`, "", "*", true},
		{`\*`, "", "x", false},
		{"*.tar", "tmp/", "tmp/a.tar", false},
		{"", "*.tmp,.*", "x/.hidden", false},
		{"", ".stager/**", ".stager/LOCK", false},
	} {
		f := plan.Filter{Include: split(tt.include), Exclude: split(tt.exclude)}
		if err := f.Check(); err != nil {
			t.Errorf("%+v: %v", f, err)
		} else if got := f.Match(tt.key); got != tt.want {
			t.Errorf("%+v matches %q: %v, want %v", f, tt.key, got, tt.want)
		}
	}
	for _, bad := range []string{"[a", "{a,b", "", "/", "a/[", `\`} {
		if err := (plan.Filter{Exclude: []string{"*", bad}}).Check(); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("Check of the pattern %q = %v, want an error that names it", bad, err)
		}
	}
}

// split splits patterns at commas outside braces.
func split(s string) []string {
	if s == "" || strings.Contains(s, "{") {
		return slices.DeleteFunc([]string{s}, func(s string) bool { return s == "" })
	}
	return strings.Split(s, ",")
}

func store(t *testing.T, sizes map[string]int) *backends.Store {
	t.Helper()
	m := mem.New()
	for key, size := range sizes {
		m.Put(key, make([]byte, size))
	}
	return backends.NewStore(m, "mem://test/", backends.Options{})
}

func keys(t *testing.T, l plan.Listing, s *backends.Store) (keys []string, err error) {
	t.Helper()
	for obj, err := range l.Objects(t.Context(), s) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, obj.Key)
	}
	return keys, nil
}

func TestListingStreamsWhatIsChosen(t *testing.T) {
	s := store(t, map[string]int{"a.tar": 5, "b/": 0, "b/x.tar": 5, "b/y.txt": 5, "c": 0})
	var markers []string
	l := plan.Listing{
		Filter: plan.Filter{Include: []string{"*.tar"}}, MaxBytes: 10,
		Marker: func(key string) { markers = append(markers, key) },
	}
	got, err := keys(t, l, s)
	if want := []string{"a.tar", "b/x.tar"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("listed %q, %v; want %q", got, err, want)
	}
	if want := []string{"b/"}; !slices.Equal(markers, want) {
		t.Errorf("told of the markers %q, want %q", markers, want)
	}
}

func TestListingErrorsSayWhatToDo(t *testing.T) {
	s := store(t, map[string]int{"a": 5, "a-x": 1, "a/b": 5, "c/": 7, "d//e": 1, "x": 9})
	only := func(include ...string) plan.Listing { return plan.Listing{Filter: plan.Filter{Include: include}} }
	limited := only("a*")
	limited.MaxBytes = 5
	for _, tt := range []struct {
		listing plan.Listing
		kind    backends.Kind
		want    string
	}{
		{only("a", "a-x", "a/b"), backends.Invalid, `mem://test/ a/b: the key is not a valid path: file "a" exists`},
		{only("c"), backends.Invalid, "c/: the key is not a valid path: it has an empty part"},
		{only("d/**"), backends.Invalid, "d//e"},
		{only("nothing"), backends.NotExist, `include ["nothing"]`},
		{limited, backends.Invalid, "2 objects with 6 bytes are selected, but at most 5"},
		{only("["), backends.Invalid, `"["`},
		{plan.Listing{Shard: plan.Shard{Index: 2, Count: 2}}, backends.Invalid, "2"},
	} {
		_, err := keys(t, tt.listing, s)
		if backends.KindOf(err) != tt.kind || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v (%v), want %v with %q", tt.listing, err, backends.KindOf(err), tt.kind, tt.want)
		}
	}
}

func TestShardsAreDisjointAndComplete(t *testing.T) {
	s := store(t, map[string]int{"a": 1, "b": 1, "c/d": 1, "c/e": 1, "f": 1})
	seen := map[string]int{}
	for i := range 3 {
		got, err := keys(t, plan.Listing{Shard: plan.Shard{Index: i, Count: 3}}, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range got {
			seen[key]++
		}
	}
	for _, key := range []string{"a", "b", "c/d", "c/e", "f"} {
		if seen[key] != 1 {
			t.Errorf("%q is in %d of 3 shards, want 1", key, seen[key])
		}
	}
	// With more nodes than objects, the nodes that get nothing have no error.
	if got, err := keys(t, plan.Listing{Shard: plan.Shard{Index: 7, Count: 9}}, s); err != nil || len(got) != 0 {
		t.Errorf("shard 7 of 9 of 5 objects = %q, %v; want none", got, err)
	}
}

// vanishing lists a file of the directory d, and finds another file of it removed.
type vanishing struct{ backends.Backend }

func (v vanishing) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		backends.Skip(ctx, backends.Skipped{Key: "d/gone.tar", What: "a file", Vanished: true})
		backends.Skip(ctx, backends.Skipped{Key: "d/fifo", What: "a FIFO"})
		for obj, err := range v.Backend.List(ctx, prefix) {
			if !yield(obj, err) {
				return
			}
		}
	}
}

// A prefetch of 13 files, of which one was removed during the listing, fetched 12 and exited with
// 0.
func TestListingOfWhatVanishesIsAnError(t *testing.T) {
	b := mem.New()
	b.Put("d/a.tar", []byte("a"))
	s := backends.NewStore(vanishing{b}, "mem:", backends.Options{}).Sub("d")
	for name, tt := range map[string]struct {
		listing plan.Listing
		want    backends.Kind
	}{
		"chosen":   {plan.Listing{}, backends.Changed},
		"left out": {plan.Listing{Filter: plan.Filter{Exclude: []string{"/gone*"}}}, backends.Unknown},
	} {
		var skipped []string
		tt.listing.Skipped = func(key, what string) { skipped = append(skipped, key+": "+what) }
		var last error
		n := 0
		for _, err := range tt.listing.Objects(t.Context(), s) {
			if last = err; err == nil {
				n++
			}
		}
		if got := backends.KindOf(last); n != 1 || got != tt.want || (last == nil) != (tt.want == backends.Unknown) {
			t.Errorf("%s: got %d objects and %v, want 1 and %v", name, n, last, tt.want)
		}
		if len(skipped) != 1 || skipped[0] != "fifo: a FIFO" {
			t.Errorf("%s: got %q skipped, want the FIFO", name, skipped)
		}
	}
}
