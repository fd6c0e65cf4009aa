package stager

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// pageSize is the number of objects in a page of paged://.
const pageSize = 100

// pages let the pages of a listing through.
type pages struct {
	mu      sync.Mutex
	through int // pages that may be listed; -1: all
	changed chan struct{}
	latency time.Duration // of each page
	broken  error         // what a page that is not let through responds; nil: it waits
}

func newPages() *pages { return &pages{through: -1, changed: make(chan struct{})} }

// allow lets the first n pages of a listing through; -1: all of them.
func (p *pages) allow(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.through = n
	close(p.changed)
	p.changed = make(chan struct{})
}

// fail makes the pages that are not let through fail; nil: they wait.
func (p *pages) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = err
	close(p.changed)
	p.changed = make(chan struct{})
}

// await returns when a page may be listed.
func (p *pages) await(ctx context.Context, page int) error {
	if p.latency > 0 {
		time.Sleep(p.latency) // in virtual time
	}
	for {
		p.mu.Lock()
		ok, changed, broken := p.through < 0 || page < p.through, p.changed, p.broken
		p.mu.Unlock()
		if ok {
			return ctx.Err()
		}
		if broken != nil {
			return broken
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// paged is a store whose listing waits before each page, and at its end.
type paged struct {
	*mem.Backend
	pages *pages
}

func (p paged) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		n := 0
		for obj, err := range p.Backend.List(ctx, prefix) {
			if err == nil && n%pageSize == 0 {
				err = p.pages.await(ctx, n/pageSize)
			}
			if n++; !yield(obj, err) || err != nil {
				return
			}
		}
		if err := p.pages.await(ctx, n/pageSize); err != nil {
			yield(backends.Object{}, err)
		}
	}
}

// beginJob returns a job with a window over pages of objects, of which the first two are listed.
func beginJob(t *testing.T, pages int, options string) *job {
	t.Helper()
	j := newJob(t, "  inputs:\n  - {name: train, source: paged://b/many/, path: DIR/train, mode: window, window: {size: 16Mi"+options+"}, order: {by: name, epochs: 1}, include: [\"*.tar\"]}\n")
	for i := range pages * pageSize {
		j.mem.Put(manyKey(i), []byte("data"))
	}
	j.begin = 2 * pageSize
	j.pages.allow(2)
	return j
}

// begun starts the job and waits for the window of the first two pages.
func (j *job) begun() {
	j.t.Helper()
	j.opened()
	w := j.Snapshot().Inputs[0].Window
	if !w.Beginning || w.Positions != 2*pageSize {
		j.t.Fatalf("got %+v, want a window that begins with two pages", w)
	}
}

// listed lets the rest of the source be listed, and waits for it.
func (j *job) listed() {
	j.t.Helper()
	j.pages.allow(-1)
	j.await("listed", func() bool { w := j.Snapshot().Inputs[0].Window; return w != nil && !w.Beginning })
}

// wants leases and acknowledges the positions from first to last.
func (j *job) wants(first, last int) {
	j.t.Helper()
	for want := first; want <= last; want++ {
		l := j.lease()
		if l.End || l.Pos != want {
			j.t.Fatalf("got %+v, want position %d", l, want)
		}
		j.ack(l)
	}
}

// The first shard of a million objects came after the last of a thousand pages.
func TestFirstShardComesBeforeTheLastPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := beginJob(t, 200, "")
		j.pages.allow(-1)
		j.pages.latency = 100 * time.Millisecond
		d := New(Config{Plan: mustParse(j), Registry: j.registry()})
		in := d.inputs[0]
		store, err := d.open(t.Context(), in.spec.Source, in.spec.Credentials)
		if err != nil {
			t.Fatal(err)
		}
		first, l := d.newBeginning(in.spec), &wholeList{done: make(chan struct{})}
		in.begin(first)
		began := time.Now()
		go func() {
			defer close(l.done)
			l.cfg, l.err = d.windowConfig(t.Context(), in, []*backends.Store{store}, nil, newSummary(in.spec))
		}()
		w, shards, err := d.begin(t.Context(), in, store, first, l)
		if took := time.Since(began); err != nil || w == nil || took > 2*time.Second || shards < pageSize {
			t.Fatalf("got a window of %d shards after %v (%v), want one within 2 s", shards, took, err)
		}
		if <-l.done; l.err != nil || time.Since(began) < 20*time.Second {
			t.Errorf("the list was complete after %v (%v), want 200 pages of 100 ms", time.Since(began), l.err)
		}
		if err := errors.Join(w.Continue(t.Context(), l.cfg), w.Close(), in.closeLists(), store.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestWindowBeginsBeforeSourceIsListed(t *testing.T) {
	j := beginJob(t, 4, "")
	j.begun()
	j.wants(0, 2*pageSize-1)
	if code, body := j.call("POST", "/v1/inputs/train/lease?wait=300ms", ""); code != 204 {
		t.Errorf("at the end of what is listed: got %d %s, want 204", code, body)
	}
	if got := j.Snapshot().Inputs[0].Listing; got == nil || *got < 2*pageSize-1 {
		t.Errorf("the status says that %v objects are listed, want two pages", got)
	}
	for _, path := range []string{"cursor?wait=0s", "cursor?wait=20ms", "plan", "quality"} {
		if code, body := j.call("GET", "/v1/inputs/train/"+path, ""); code != 503 || !strings.Contains(body, "is still being listed") {
			t.Errorf("%s of a window whose source is being listed: got %d %s, want 503", path, code, body)
		}
	}
	if code, body := j.call("PUT", "/v1/inputs/train/cursor?wait=0s", "{}"); code != 503 || !strings.Contains(body, "is still being listed") {
		t.Errorf("a rewind: got %d %s, want 503", code, body)
	}
	_, first := j.call("GET", "/v1/inputs/train/cursor?beginning=true", "")
	if !strings.Contains(first, `"manifest":"first-200-`) {
		t.Errorf("the cursor of the beginning: got %s", first)
	}
	waits := make(chan string, 1)
	go func() {
		_, body := j.call("GET", "/v1/inputs/train/cursor", "")
		waits <- body
	}()
	j.listed()
	if _, err := os.Stat(j.list()); err != nil {
		t.Errorf("the list is not kept: %v", err)
	}
	j.wants(2*pageSize, 4*pageSize-1)
	if l := j.lease(); !l.End {
		t.Errorf("got %+v, want the end", l)
	}
	if body := <-waits; !strings.Contains(body, `"manifest":"`) || strings.Contains(body, "first-") {
		t.Errorf("a request that waits for the list: got %s, want the cursor", body)
	}
	var c window.Cursor
	code, body := j.call("GET", "/v1/inputs/train/cursor", "")
	if err := json.Unmarshal([]byte(body), &c); code != 200 || err != nil || c.Epoch != 1 {
		t.Errorf("got %d %s, want a cursor at the end", code, body)
	}
	for beginning, want := range map[string]int{begun([]byte(first)): 200, "first-200-abc": 422, c.Manifest: 200} {
		if code, body := j.call("GET", "/v1/inputs/train/cursor?beginning="+beginning, ""); code != want {
			t.Errorf("beginning=%.20s: got %d %s, want %d", beginning, code, body, want)
		}
	}
	if code, body := j.call("GET", "/v1/inputs/train/cursor?wait=x", ""); code != 400 {
		t.Errorf("wait=x: got %d %s, want 400", code, body)
	}
	if in := j.Snapshot().Inputs[0]; in.Listing != nil || in.Window.Redelivered > 0 {
		t.Errorf("got %+v, want the whole list, and nothing delivered twice", in)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// What was delivered before a restart stays delivered, wherever the process ended.
func TestBegunWindowContinuesAfterRestart(t *testing.T) {
	j := beginJob(t, 4, "")
	j.begun()
	j.wants(0, 4)
	for range 2 {
		if err := j.finish(); err != nil {
			t.Fatal(err)
		}
		if b := j.newBeginning(mustParse(j).Spec.Inputs[0]); b == nil || b.least < 2*pageSize {
			t.Errorf("got %+v, want to begin with as many objects as before", b)
		}
		j.pages.allow(1)
		j.start()
		j.await("a page is listed", func() bool { n := j.Snapshot().Inputs[0].Listing; return n != nil && *n >= pageSize })
		if w := j.Snapshot().Inputs[0].Window; w != nil {
			t.Fatalf("got %+v with fewer objects than the process before had, want no window yet", w)
		}
		j.pages.allow(3)
		j.await("open", func() bool { return j.Snapshot().Inputs[0].Window != nil })
	}
	j.wants(5, 6)
	j.listed()
	j.wants(7, 2*pageSize+10)
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
	j.pages.allow(-1)
	j.opened()
	j.wants(2*pageSize+11, 4*pageSize-1)
	if l := j.lease(); !l.End {
		t.Errorf("got %+v, want the end", l)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// Whether a directory's state is that of a whole list is known at its end: the window waits for it.
func TestWindowWithStateOfAWholeListWaitsForIt(t *testing.T) {
	j := beginJob(t, 4, "")
	j.pages.allow(-1)
	j.opened()
	j.listed()
	j.wants(0, 2)
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(j.list()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	j.pages.allow(3)
	j.start()
	j.await("three pages are listed", func() bool { n := j.Snapshot().Inputs[0].Listing; return n != nil && *n >= 3*pageSize })
	if w := j.Snapshot().Inputs[0].Window; w != nil {
		t.Errorf("got %+v before the end of the list, want no window", w)
	}
	j.pages.allow(-1)
	j.wants(3, 5)
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// Between two processes the source changed: among the objects that the first had, and behind them.
func TestBegunWindowAndAChangedSource(t *testing.T) {
	for name, c := range map[string]struct {
		change func(j *job)
		first  int    // position
		name   string // of the shard there
	}{
		"an object in front":   {func(j *job) { j.mem.Put("many/000000-.tar", []byte("new")) }, 0, "000000-.tar"},
		"the first is another": {func(j *job) { j.mem.Put(manyKey(0), []byte("other")) }, 0, filepath.Base(manyKey(0))},
		"the first is gone":    {func(j *job) { j.remove(manyKey(0)) }, 0, filepath.Base(manyKey(1))},
		"one more behind":      {func(j *job) { j.mem.Put("many/000350-.tar", []byte("new")) }, 5, filepath.Base(manyKey(5))},
		"one fewer behind":     {func(j *job) { j.remove(manyKey(350)) }, 5, filepath.Base(manyKey(5))},
	} {
		j := beginJob(t, 4, "")
		j.begun()
		j.wants(0, 4)
		if err := j.finish(); err != nil {
			t.Fatal(err)
		}
		c.change(j)
		j.pages.allow(3)
		j.start()
		if c.first == 0 { // its state is dropped by the whole list alone
			j.await("three pages are listed", func() bool { n := j.Snapshot().Inputs[0].Listing; return n != nil && *n >= 3*pageSize-1 })
			if w := j.Snapshot().Inputs[0].Window; w != nil {
				t.Errorf("%s: got %+v before the end of the list, want no window", name, w)
			}
			j.pages.allow(-1)
		}
		j.await("open", func() bool { return j.Snapshot().Inputs[0].Window != nil })
		if l := j.lease(); l.Pos != c.first || !strings.HasSuffix(l.Path, c.name) {
			t.Errorf("%s: got %+v, want %s at position %d", name, l, c.name, c.first)
		}
		j.listed()
		l := j.lease()
		for ; !l.End && l.Pos < 350; l = j.lease() {
			j.ack(l)
		}
		if l.Pos != 350 || strings.HasPrefix(name, "one more") && !strings.HasSuffix(l.Path, "000350-.tar") {
			t.Errorf("%s: got %+v, want what is listed at position 350", name, l)
		}
		if err := j.finish(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is wrong with a later page ends the window with the error that it would not have begun with.
func TestBegunWindowEndsWithWhatIsWrongLater(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(j *job)
		want  func(error) bool
	}{
		"a shard larger than the window": {
			func(j *job) { j.mem.Put(manyKey(350), make([]byte, 17<<20)) },
			func(err error) bool { return errors.As(err, new(*window.BudgetError)) },
		},
		"a key that is no path": {
			func(j *job) { j.mem.Put("many/000350-\x01.tar", []byte("data")) },
			func(err error) bool { return backends.KindOf(err) == backends.Invalid },
		},
	} {
		j := beginJob(t, 4, "")
		c.spoil(j)
		j.begun()
		j.wants(0, 1)
		held := j.lease()
		j.pages.allow(-1)
		j.await("failed", func() bool { return j.Snapshot().Inputs[0].Error != "" })
		if code, body := j.call("POST", "/v1/inputs/train/lease?wait=1s", ""); code != 500 {
			t.Errorf("%s: a lease after the error: got %d %s, want 500", name, code, body)
		}
		if err := j.finish(); !c.want(err) {
			t.Errorf("%s: got %v (held %d)", name, err, held.Pos)
		}
		if _, err := os.Stat(j.list()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want no list for the next start", name, err)
		}
	}
}

// A window that does not work with the first objects waits for all of them, and ends as it did.
func TestWindowThatCannotBeginWaitsForItsList(t *testing.T) {
	j := beginJob(t, 4, "")
	j.mem.Put(manyKey(5), make([]byte, 17<<20))
	j.start()
	j.await("two pages are listed", func() bool { n := j.Snapshot().Inputs[0].Listing; return n != nil && *n >= 2*pageSize })
	if in := j.Snapshot().Inputs[0]; in.Window != nil || in.Error != "" {
		t.Errorf("got %+v, want to wait for the list", in)
	}
	j.pages.allow(-1)
	j.await("failed", func() bool { return j.Snapshot().Inputs[0].Error != "" })
	if err := j.finish(); !errors.As(err, new(*window.BudgetError)) {
		t.Errorf("got %v, want a *window.BudgetError", err)
	}
}

// Orders that depend on all objects wait for the whole list, and so do windows that keep files for the
// next epoch, or give each shard to several groups.
func TestWindowInAnotherOrderWaitsForItsList(t *testing.T) {
	j := beginJob(t, 1, "")
	spec := mustParse(j).Spec.Inputs[0]
	d := New(Config{Plan: mustParse(j), Registry: j.registry()})
	if d.newBeginning(spec) == nil {
		t.Error("a window in the order of names waits for its list")
	}
	for name, change := range map[string]func(*plan.Input){
		"shuffle":  func(in *plan.Input) { in.Order.By = plan.Shuffle },
		"list":     func(in *plan.Input) { in.Order.By = plan.ByList },
		"block":    func(in *plan.Input) { in.Order.By = plan.ByBlock },
		"equalize": func(in *plan.Input) { in.Order.Equalize = plan.EqualizeDrop },
		"index":    func(in *plan.Input) { in.Index = "index.jsonl" },
		"no end":   func(in *plan.Input) { in.Order.Epochs = 0 },
		"rolling":  func(in *plan.Input) { in.Window.Release = plan.ReleaseRolling },
		"never":    func(in *plan.Input) { in.Window.Release = plan.ReleaseNever },
		"reuse":    func(in *plan.Input) { in.Window.Reuse = plan.ReuseFit },
		"groups":   func(in *plan.Input) { in.Window.Groups = 2 },
		"bundles":  func(in *plan.Input) { in.Window.Items = plan.ItemsBundles },
		"two":      func(in *plan.Input) { in.Sources = []plan.Source{{}, {}} },
	} {
		other, w := spec, *spec.Window
		other.Window = &w
		if change(&other); d.newBeginning(other) != nil {
			t.Errorf("%s: the window does not wait for its list", name)
		}
	}
}

// The list takes space on the disk while the window fills the rest.
func TestListOfABegunWindowIsPartOfItsSize(t *testing.T) {
	j := beginJob(t, 4, "")
	j.begun()
	in := j.inputs[0]
	in.mu.Lock()
	w := in.window
	in.mu.Unlock()
	before := w.ItemLimit()
	j.listed()
	// Run may be measuring the files at this moment.
	j.await("the window has the rest of an eighth of 16 MiB", func() bool { return w.ItemLimit()-before >= 1<<20 })
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// The metric says how many objects are listed so far, and that the listing has ended.
func TestListingObjectsAreCounted(t *testing.T) {
	j := beginJob(t, 12, "")
	j.pages.allow(11)
	j.opened()
	metric := func(value string) func() bool {
		return func() bool {
			_, text := j.call("GET", "/metrics", "")
			return strings.Contains(text, `stager_window_listing_objects{input="train"} `+value+"\n")
		}
	}
	j.await("a thousand objects are counted", metric("1000"))
	j.listed()
	j.await("the listing has ended", metric("0"))
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}
