package layout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// destination is a store that counts requests.
type destination struct {
	*mem.Backend
	faults conformance.Faults
	store  *backends.Store
}

func newDestination() *destination {
	d := &destination{Backend: mem.New()}
	d.store = backends.NewStore(d.faults.Wrap(d.Backend), "mem://dst", backends.Options{RetryFor: time.Minute})
	return d
}

func (d *destination) join(t *testing.T, l Layout, index int) *Worker {
	t.Helper()
	w, err := Join(t.Context(), d.store, l, index)
	if err != nil {
		t.Fatalf("worker %d joins: %v", index, err)
	}
	return w
}

func (d *destination) finish(t *testing.T, w *Worker) bool {
	t.Helper()
	all, err := w.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// refused checks that a worker may not join, and why.
func (d *destination) refused(t *testing.T, l Layout, index int, want string) {
	t.Helper()
	_, err := Join(t.Context(), d.store, l, index)
	if backends.KindOf(err) != backends.Exist || !strings.Contains(fmt.Sprint(err), want) || strings.Contains(fmt.Sprint(err), "\n") {
		t.Errorf("worker %d joins: got %v, want one sentence of kind exist with %q", index, err, want)
	}
}

func of(workers int, objects ...string) Layout {
	var d Digest
	for _, key := range objects {
		d.Add(backends.Object{Key: key, Size: 1, Version: "v1"})
	}
	return Layout{
		Kind: "copy", Name: "src", Source: "mem://src", Listing: d.String(), Objects: d.Objects(), Workers: workers,
		Options: map[string]string{"--include": Quote([]string{"*.tar"}), "--exclude": ""},
	}
}

func TestLayoutIsSharedByAllWorkers(t *testing.T) {
	d := newDestination()
	for i := range 3 {
		w := d.join(t, of(3, "a", "b"), i)
		if got, want := d.finish(t, w), i == 2; got != want {
			t.Errorf("worker %d: all have finished: got %v, want %v", i, got, want)
		}
	}
	if err := Verify(t.Context(), d.store, of(1, "a", "b"), "--include"); err != nil {
		t.Errorf("Verify of complete work: got %v, want no error", err)
	}
}

// Each of these workers exited with success, although no worker handled some of the objects.
func TestLayoutRefusesAWorkerThatDiffers(t *testing.T) {
	other := of(3, "a", "b")
	other.Options = map[string]string{"--include": Quote([]string{"*.tar", "*.json"})}
	seeded := of(3, "a", "b")
	seeded.Options = map[string]string{"--include": Quote([]string{"*.tar"}), "--shuffle": "7"}
	elsewhere := of(3, "a", "c")
	elsewhere.Source = "mem://elsewhere"
	for _, tt := range []struct {
		what string
		l    Layout
		want string
	}{
		{"an object more", of(3, "a", "b", "c"), "the source has changed: it has 3 objects, and had 2"},
		{"another object", of(3, "a", "c"), "the source has changed: some of its 2 objects were replaced"},
		{"another source", elsewhere, "the source is mem://elsewhere here, but mem://src in the record"},
		{"another count", of(2, "a", "b"), "this worker is one of 2, but the layout has 3"},
		{"another filter", other, `--include is "*.tar" "*.json" here, but "*.tar" in the record`},
		{"a seed", seeded, "--shuffle is 7 here, but not given in the record"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			d := newDestination()
			d.finish(t, d.join(t, of(3, "a", "b"), 0))
			d.refused(t, tt.l, 1, tt.want)
			d.refused(t, tt.l, 1, "2 of its 3 workers have not finished (1, 2)")
		})
	}
}

func TestLayoutMayChangeAfterACompleteRun(t *testing.T) {
	d := newDestination()
	for i := range 2 {
		d.finish(t, d.join(t, of(2, "a"), i))
	}
	for i := range 2 {
		w := d.join(t, of(2, "a", "b"), i)
		if got, want := d.finish(t, w), i == 1; got != want {
			t.Errorf("worker %d of the second layout: all have finished: got %v, want %v", i, got, want)
		}
	}
	if n := len(d.Keys()); n != 3 {
		t.Errorf("the destination has %q, want a record and two marks", d.Keys())
	}
}

// The first worker of a second run ends before the source changes. With the marks of the first run
// the record looks complete, so the second worker would replace it, and both would exit with
// success.
func TestLayoutOfASecondRunIsOpenUntilAllFinish(t *testing.T) {
	d := newDestination()
	for i := range 2 {
		d.finish(t, d.join(t, of(2, "a"), i))
	}
	d.finish(t, d.join(t, of(2, "a"), 0))
	d.refused(t, of(2, "a", "b"), 1, "1 of its 2 workers has not finished (1)")
	d.finish(t, d.join(t, of(2, "a"), 0)) // a restarted pod
	d.finish(t, d.join(t, of(2, "a"), 1))
	d.join(t, of(2, "a", "b"), 0)
}

func TestLayoutIsLeftToOneWorkerAlone(t *testing.T) {
	d := newDestination()
	d.join(t, of(1, "a"), 0)
	if got := len(d.faults.Calls(conformance.Create)); got != 1 {
		t.Errorf("one worker writes %d times, want 1", got)
	}
	if got := len(d.faults.Calls(conformance.List)) + len(d.faults.Calls(conformance.Stat)); got != 0 {
		t.Errorf("one worker asks %d times, want 0", got)
	}
	first := d.join(t, of(1, "a", "b"), 0) // it was killed, and the source has changed
	for i := range 2 {
		d.join(t, of(2, "a", "b"), i) // several workers continue
	}
	last := d.join(t, of(1, "a", "b"), 0) // and one worker does the rest
	if !d.finish(t, last) {
		t.Error("one worker alone does not finish, want that it does")
	}
	tally := first.Tally()
	for obj, err := range d.store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		tally.Add(obj)
	}
	if _, err := first.All(t.Context(), tally); backends.KindOf(err) != backends.Changed {
		t.Errorf("a worker whose record was replaced: got %v, want kind changed", err)
	}
	d.refused(t, of(1, "x"), 0, "the source has changed: it has 1 object, and had 2")
}

// The response to the first create is lost, so the record is this worker's own.
func TestLayoutIsJoinedAfterALostReply(t *testing.T) {
	d := newDestination()
	d.faults.Add(conformance.Commit, conformance.Lost(backends.Unavailable))
	d.finish(t, d.join(t, of(2, "a"), 0))
	if !d.finish(t, d.join(t, of(2, "a"), 1)) {
		t.Error("both workers have finished, and the second is not the last")
	}
}

func TestLayoutResetRemovesTheRecord(t *testing.T) {
	d := newDestination()
	d.finish(t, d.join(t, of(2, "a"), 0))
	w := d.join(t, of(2, "a"), 1)
	if err := Verify(t.Context(), d.store, of(1, "a")); backends.KindOf(err) != backends.Changed {
		t.Errorf("Verify of work that is not complete: got %v, want kind changed", err)
	}
	if found, err := Reset(t.Context(), d.store, of(1, "b")); !found || err != nil {
		t.Errorf("Reset = %v, %v, want true and no error", found, err)
	}
	if keys := d.Keys(); len(keys) != 0 {
		t.Errorf("after Reset there is %q, want nothing", keys)
	}
	if _, err := w.Finish(t.Context()); backends.KindOf(err) != backends.Changed {
		t.Errorf("a worker ends after Reset: got %v, want kind changed", err)
	}
	d.join(t, of(2, "a", "b"), 0)
}

func TestLayoutKeepsARecordThatItCannotRead(t *testing.T) {
	for text, want := range map[string]string{
		"{":                        "cannot read",
		`{"format":2,"workers":2}`: "format 2",
		`{"format":1}`:             "incomplete",
	} {
		d := newDestination()
		key := base(of(2)) + suffix
		d.Put(key, []byte(text))
		if _, err := Join(t.Context(), d.store, of(2, "a"), 0); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("a record of %q: got %v, want an error with %q", text, err, want)
		}
		if now, _ := d.Get(key); string(now) != text {
			t.Errorf("a record of %q became %q, want it as it was", text, now)
		}
	}
}

// Fields of a later version are not compared.
func TestLayoutIgnoresUnknownFields(t *testing.T) {
	d := newDestination()
	d.join(t, of(2, "a"), 0)
	key := base(of(2)) + suffix
	text, _ := d.Get(key)
	d.Put(key, []byte(strings.Replace(string(text), "{", `{"later":true,`, 1)))
	d.join(t, of(2, "a"), 1)
}
