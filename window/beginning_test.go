package window

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// begun returns a window that begins with the first n items of a plan.
func begun(t *testing.T, whole Config, n int) *bench {
	t.Helper()
	b := newBench(t, beginning(whole, n))
	b.fetcher.items = listOf(whole)
	return b
}

// whole returns the configuration of a plan of which the window has the beginning.
func (b *bench) whole(items List, manifest string) Config {
	c := beginning(Config{Items: items}, len(items))
	whole := b.cfg
	whole.Beginning, whole.Items, whole.Order, whole.Begins, whole.Manifest = false, items, c.Order, c.Begins, manifest
	return whole
}

// A window over a million objects delivered its first shard after the last page of the listing.
func TestBeginningIsDeliveredWithoutAnEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(5, 10)
		b := begun(t, Config{Items: all, Size: 100, Epochs: 2}, 3)
		b.idle()
		for pos := range 3 {
			l := b.must(b.lease("a"))
			if l.Pos != pos {
				t.Errorf("got %+v, want position %d", l, pos)
			}
			b.ok(b.Ack(l.ID))
			b.idle()
		}
		for _, early := range []bool{false, true} {
			if _, err := b.Lease(context.Background(), LeaseRequest{Reader: "b", EndEarly: early}); !isWait(err, CauseBackend) {
				t.Errorf("early %t: got %v, want to wait for the backend", early, err)
			}
		}
		b.advance(time.Minute)
		if s := b.Status(); !s.Beginning || s.Done || s.Epoch != 0 || s.Epochs != 2 || s.Positions != 3 {
			t.Errorf("got %+v, want the beginning of epoch 0 of 2", s)
		}
		if slices.ContainsFunc(b.ls("ready"), func(name string) bool { return strings.HasSuffix(name, ".END") }) {
			t.Errorf("an END is in %q", b.ls("ready"))
		}
		b.ok(b.Continue(t.Context(), b.whole(all, "whole")))
		b.idle()
		for _, want := range []seq{{0, 3}, {0, 4}, {1, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}} {
			l, err := b.lease("a")
			if isEnd(err, 0) {
				l, err = b.lease("a")
			}
			if b.must(l, err); l.Epoch != want.epoch || l.Pos != want.pos {
				t.Errorf("got %+v, want %v", l, want)
			}
			b.ok(b.Ack(l.ID))
			b.idle()
		}
		if _, err := b.lease("a"); !isEnd(err, 1) || b.Status().Beginning {
			t.Errorf("got %v, want the end of epoch 1", err)
		}
	})
}

// The shards at the end of the beginning are those that readers hold when the rest follows. No lease
// ends, and no shard is delivered again.
func TestContinueKeepsLeases(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(4, 10)
		b := begun(t, Config{Items: all, Size: 100, Epochs: 1}, 2)
		b.idle()
		first, second := b.must(b.lease("a")), b.must(b.lease("b"))
		b.ok(b.Continue(t.Context(), b.whole(all, "whole")))
		b.idle()
		b.ok(errors.Join(b.Ack(first.ID), b.Ack(second.ID)))
		if l := b.must(b.lease("a")); l.Pos != 2 || b.Status().Redelivered > 0 {
			t.Errorf("got %+v, want position 2, and nothing twice", l)
		}
	})
}

func TestBeginningIsNotReadyBeforeMinReady(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(5, 10)
		b := begun(t, Config{Items: all, Size: 100, Epochs: 1, MinReady: MinReady{Files: 5}}, 3)
		b.idle()
		if b.Ready() {
			t.Error("ready with 3 files, want 5")
		}
		b.ok(b.Continue(t.Context(), b.whole(all, "whole")))
		b.idle()
		if !b.Ready() {
			t.Error("not ready with 5 files")
		}
	})
}

// Another plan with the same beginning must not take the state of positions that the beginning does
// not have: its shards there would never be delivered.
func TestStateOfWholePlanIsNotThatOfAnother(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(4, 10)
		b := begun(t, Config{Items: all, Size: 100, Epochs: 1}, 2)
		b.idle()
		b.ok(b.Continue(t.Context(), b.whole(all, "whole")))
		b.idle()
		for range 3 {
			b.ok(b.Ack(b.must(b.lease("a")).ID))
			b.idle()
		}
		other := append(slices.Clone(all[:2]), Item{Name: "other", Size: 10}, Item{Name: "another", Size: 10})
		b.cfg = b.whole(other, "other")
		b.fetcher.items = other
		b.crash()
		b.idle()
		var got []string
		for range 4 {
			l := b.must(b.lease("r"))
			got = append(got, l.Name)
			b.ok(b.Ack(l.ID))
			b.idle()
		}
		if want := []string{"s00.tar", "s01.tar", "other", "another"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// What readers have acknowledged before a kill stays finished, whichever plan the next start has: the
// same beginning, a longer one, or the whole.
func TestStateOfBeginningContinues(t *testing.T) {
	all := items(5, 10)
	for name, next := range map[string]func(b *bench) Config{
		"the same beginning": func(b *bench) Config { return b.cfg },
		"a longer one":       func(b *bench) Config { return beginning(b.whole(all, ""), 4) },
		"the whole":          func(b *bench) Config { return b.whole(all, "whole") },
		"the whole, killed meanwhile": func(b *bench) Config {
			whole := b.whole(all, "whole")
			b.ok(b.renameState(whole.planName()))
			return whole
		},
	} {
		virtual(t, func(t *testing.T) {
			b := begun(t, Config{Items: all, Size: 100, Epochs: 1, Part: "0/1"}, 3)
			b.idle()
			b.ok(b.Ack(b.must(b.lease("a")).ID))
			b.idle()
			calls := b.fetcher.calls
			b.cfg = next(b)
			b.crash()
			b.idle()
			if l := b.must(b.lease("a")); l.Pos != 1 || l.Attempt != 1 {
				t.Errorf("%s: got %+v, want position 1 for the first time", name, l)
			}
			if again := b.fetcher.calls - calls; again > b.cfg.Items.Len()-3 {
				t.Errorf("%s: %d shards were fetched, want those that were not there", name, again)
			}
			text, err := os.ReadFile(b.at(journalName))
			if first, _, _ := strings.Cut(string(text), "\n"); err != nil || !strings.Contains(first, b.cfg.planName()) {
				t.Errorf("%s: the journal begins with %q (%v), want the plan %q", name, first, err, b.cfg.planName())
			}
		})
	}
}

// The beginning of a plan cannot judge whether other state is that of the whole plan, which another process
// may have written a moment ago: shards that are acknowledged there would be delivered again. Only the
// whole plan drops it.
func TestBeginningDropsNoStateOfAnotherPlan(t *testing.T) {
	all := items(5, 10)
	for name, c := range map[string]struct {
		begins int // items of the plan whose state is in the directory; 0: the whole
		spoil  func(b *bench) error
		next   func(b *bench) Config // what does not begin
		last   func(b *bench) Config
		want   int // position
	}{
		"a shorter beginning": {begins: 3, next: func(b *bench) Config { return beginning(b.whole(all, ""), 2) }, last: func(b *bench) Config { return b.whole(all, "whole") }, want: 1},
		"the whole plan":      {next: func(b *bench) Config { return beginning(b.whole(all, ""), 4) }, last: func(b *bench) Config { return b.whole(all, "whole") }, want: 1},
		"another plan":        {next: func(b *bench) Config { return beginning(b.whole(all, ""), 4) }, last: func(b *bench) Config { return b.whole(all, "other") }, want: 0},
		"another part": {begins: 3, next: func(b *bench) Config {
			c := b.cfg
			c.Part = "1/2"
			return c
		}, last: func(b *bench) Config { return b.whole(all, "whole") }, want: 1},
		"no stamp, and a journal of another": {
			spoil: func(b *bench) error { return os.Remove(b.at(stampName)) },
			next:  func(b *bench) Config { return beginning(b.whole(all, ""), 4) }, last: func(b *bench) Config { return b.whole(all, "whole") }, want: 1,
		},
	} {
		virtual(t, func(t *testing.T) {
			b := begun(t, Config{Items: all, Size: 100, Epochs: 1, Part: "0/1"}, max(c.begins, 1))
			if c.begins == 0 {
				b.ok(b.Continue(t.Context(), b.whole(all, "whole")))
			}
			b.idle()
			b.ok(b.Ack(b.must(b.lease("a")).ID))
			b.idle()
			b.ok(b.Close())
			if c.spoil != nil {
				b.ok(c.spoil(b))
			}
			next, last := c.next(b), c.last(b)
			for range 2 {
				if w, err := New(next); !errors.Is(err, ErrOtherState) {
					t.Errorf("%s: got %v, %v, want ErrOtherState", name, w, err)
				}
			}
			b.cfg = last
			b.open()
			b.idle()
			if l := b.must(b.lease("a")); l.Pos != c.want || c.want > 0 && l.Attempt != 1 {
				t.Errorf("%s: got %+v, want position %d for the first time", name, l, c.want)
			}
		})
	}
}

// A compaction that began before the whole plan was known ends with a journal that names the beginning.
func TestJournalNamesTheWholePlan(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(4, 10)
		b := begun(t, Config{Items: all, Size: 100, Epochs: 1}, 2)
		b.idle()
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		plan, next, err := b.writeCompacted()
		b.ok(b.Continue(t.Context(), b.whole(all, "whole")))
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		b.replaceJournal(plan, next, err)
		b.idle()
		text, err := os.ReadFile(b.at(journalName))
		if first, _, _ := strings.Cut(string(text), "\n"); err != nil || !strings.Contains(first, "whole") {
			t.Errorf("the journal begins with %q (%v), want the whole plan", first, err)
		}
		b.cfg = b.whole(all, "whole")
		b.crash()
		b.idle()
		if l := b.must(b.lease("a")); l.Pos != 2 {
			t.Errorf("got %+v, want position 2", l)
		}
	})
}

// What New would refuse ends Run as soon as it is known, with the same error, which readers receive.
func TestContinueRefusesPlansThatCannotWork(t *testing.T) {
	large := append(items(3, 10), Item{Name: "large", Size: 1000})
	for name, c := range map[string]struct {
		whole func(b *bench) Config
		want  func(error) bool
	}{
		"a shard that is larger than the window": {
			func(b *bench) Config { return b.whole(large, "whole") },
			func(err error) bool { return errors.As(err, new(*BudgetError)) },
		},
		"a plan that begins otherwise": {
			func(b *bench) Config {
				whole := b.whole(items(5, 10), "whole")
				whole.Begins = nil
				return whole
			},
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "is not the beginning of") },
		},
		"another order": {
			func(b *bench) Config {
				whole := b.whole(items(5, 10), "whole")
				whole.Order = func(int) Order { return Indexes{4, 3, 2, 1, 0} }
				return whole
			},
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "is not the beginning of") },
		},
	} {
		virtual(t, func(t *testing.T) {
			b := begun(t, Config{Items: items(3, 10), Size: 100, Epochs: 1}, 2)
			b.idle()
			if err := b.Continue(t.Context(), c.whole(b)); !c.want(err) {
				t.Errorf("%s: Continue: got %v", name, err)
			}
			if _, err := b.lease("a"); !c.want(err) {
				t.Errorf("%s: a reader: got %v", name, err)
			}
			b.watch = false
			if err := b.Run(t.Context()); !c.want(err) {
				t.Errorf("%s: Run: got %v", name, err)
			}
			if manifest, known := PlanIn(b.dir); manifest != "first-2" || !known {
				t.Errorf("%s: the state is that of %q, want the beginning", name, manifest)
			}
		})
	}
}

// Nothing that the beginning does not have is used before the directory names the whole plan.
func TestContinueWaitsForTheDisk(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var said bytes.Buffer
		all := items(4, 10)
		b := begun(t, Config{Items: all, Size: 100, Epochs: 1, Log: slog.New(slog.NewTextHandler(&said, nil))}, 2)
		b.idle()
		stamp := b.at(stampName)
		b.ok(errors.Join(os.Rename(stamp, stamp+".away"), os.MkdirAll(filepath.Join(stamp, "foreign"), 0o755)))
		ended := make(chan error, 1)
		go func() { ended <- b.Continue(t.Context(), b.whole(all, "whole")) }()
		time.Sleep(10 * time.Second)
		if s := b.Status(); !s.Beginning || s.Positions != 2 {
			t.Errorf("got %+v, want the beginning", s)
		}
		if !strings.Contains(said.String(), `level=WARN msg="cannot record that the source is listed, trying again"`) {
			t.Errorf("got the log %q", said.String())
		}
		b.ok(os.RemoveAll(stamp))
		b.ok(<-ended)
		if manifest, _ := PlanIn(b.dir); manifest != "whole" || b.Beginning() {
			t.Errorf("the state is that of %q, want the whole", manifest)
		}
	})
}

func TestContinueEndsWithItsContext(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := begun(t, Config{Items: items(4, 10), Size: 100, Epochs: 1}, 2)
		stamp := b.at(stampName)
		b.ok(errors.Join(os.Remove(stamp), os.MkdirAll(filepath.Join(stamp, "foreign"), 0o755)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Continue(ctx, b.whole(items(4, 10), "whole")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		b.ok(b.Close())
		if err := b.Continue(t.Context(), b.whole(items(4, 10), "whole")); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: got %v, want ErrClosed", err)
		}
	})
}

func TestPlanInReturnsWhoseStateItIs(t *testing.T) {
	virtual(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "train")
		want := func(when, plan string, known bool) {
			t.Helper()
			if got, is := PlanIn(dir); got != plan || is != known {
				t.Errorf("%s: got %q, %t, want %q, %t", when, got, is, plan, known)
			}
		}
		want("no directory", "", true)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		want("an empty directory", "", true)
		b := newBench(t, Config{Dir: dir, Items: items(2, 10), Size: 100, Epochs: 1, Part: "1/2", Manifest: "m"})
		want("a plan", "m", true)
		stamp := b.at(stampName)
		b.ok(os.WriteFile(stamp, []byte("garbage"), 0o644))
		want("garbage", "", false)
		b.ok(os.WriteFile(stamp, nil, 0o644))
		want("an empty stamp", "", false)
		b.ok(errors.Join(os.Remove(stamp), os.Symlink("/etc/passwd", stamp)))
		want("a link", "", false)
		b.ok(os.Remove(stamp))
		want("a journal without a stamp", "", false)
		b.ok(os.Remove(b.at(journalName)))
		want("neither", "", true)
	})
}

// A cursor of the beginning is one of every plan that begins so, on any node, if it has nothing else.
func TestRewindAcceptsCursorsOfABeginning(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(5, 10)
		b := begun(t, Config{Items: all, Size: 100, Epochs: 2}, 3)
		b.idle()
		for range 2 {
			b.ok(b.Ack(b.must(b.lease("a")).ID))
		}
		c := b.Cursor()
		b.ok(b.Continue(t.Context(), b.whole(all, "whole")))
		b.idle()
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		later := b.Cursor()
		if c.Manifest != "first-3" || later.Manifest != "whole" {
			t.Errorf("got cursors of %q and %q", c.Manifest, later.Manifest)
		}
		b.cfg = b.whole(all, "whole")
		only := func(int) int { return 0 }
		for name, change := range map[string]func(*Cursor){
			"a longer one than the plan": func(c *Cursor) { c.Manifest = "first-6" },
			"another plan":               func(c *Cursor) { c.Manifest = "other" },
			"a position behind it":       func(c *Cursor) { c.Finished = map[int][]Span{0: {{0, 1}, {3, 3}}} },
			"a used position behind it":  func(c *Cursor) { c.Used = []Used{{0, 3, 1}} },
			"a later epoch":              func(c *Cursor) { c.Epoch, c.Finished = 1, nil },
			"positions of a later epoch": func(c *Cursor) { c.Finished = map[int][]Span{1: {{0, 1}}} },
		} {
			other := c
			change(&other)
			if err := b.Rewind([]Cursor{other}, only); !errors.As(err, new(*CursorError)) {
				t.Errorf("%s: got %v, want a *CursorError", name, err)
			}
		}
		b.ok(b.Rewind([]Cursor{c}, only))
		b.crash()
		b.idle()
		if l := b.must(b.lease("a")); l.Pos != 2 || b.Cursor().Manifest != "whole" {
			t.Errorf("got %+v, want position 2 of the whole plan", l)
		}
	})
}
