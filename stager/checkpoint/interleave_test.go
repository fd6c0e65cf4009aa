package checkpoint

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// These tests run several processes at one destination with every order of their store
// operations. A scheduler executes one operation of one actor at a time. Schedules are explored
// depth first with a limit on preemptions, then at random.

// actor is one process at the destination.
type actor struct {
	name    string
	run     func(ctx context.Context, store *backends.Store) error
	faultAt int // the operation, counted from 1, with the fault; 0: none
	fault   fault
	text    string // what a writer saves in the file "w"

	// overlaps reports that it has goroutines of its own. Then all actors use lanes; see
	// overlap_test.go.
	overlaps bool
	before   func(t *testing.T, b *mem.Backend) // runs in the bubble before all actors; may be nil
	lanes    *lanes

	ops   int
	asks  chan string // operations that wait for their turn; closed at the end
	turn  chan struct{}
	err   error
	dead  bool
	trace *[]string
}

// fault is what happens to an actor at one of its operations.
type fault int

const (
	killedBefore fault = iota // it is killed before the operation
	killedAfter               // it is killed after the operation has taken effect
	answerLost                // the operation takes effect, but fails for the actor
)

var errCrashed = backends.Errorf(backends.Permission, "", "", "the process was killed")

// do waits for the actor's turn and executes one operation.
func (a *actor) do(op, key string, f func() error) error {
	if a.lanes != nil {
		return a.lanes.do(a, "", op, key, f)
	}
	if a.dead {
		return errCrashed
	}
	a.ops++
	n := a.ops
	a.asks <- op + " " + key
	<-a.turn
	return a.take(n, op, key, f)
}

// take executes operation n, with its fault.
func (a *actor) take(n int, op, key string, f func() error) error {
	if n == a.faultAt && a.fault == killedBefore {
		a.dead = true
		*a.trace = append(*a.trace, fmt.Sprintf("%-9s %-6s %s: killed", a.name, op, key))
		return errCrashed
	}
	err := f()
	result := "ok"
	if err != nil {
		result = backends.KindOf(err).String()
	}
	if n == a.faultAt && a.fault == killedAfter {
		a.dead = true
		err, result = errCrashed, result+", and then killed"
	} else if n == a.faultAt {
		err, result = backends.Errorf(backends.Permission, op, key, "the answer was lost"), result+", and the answer is lost"
	}
	*a.trace = append(*a.trace, fmt.Sprintf("%-9s %-6s %s: %s", a.name, op, key, result))
	return err
}

// stepped is the destination as one actor sees it.
type stepped struct {
	backends.Backend
	a doer
}

// doer executes an operation when its turn comes.
type doer interface {
	do(op, key string, f func() error) error
}

// pageLength is how many objects one request of a listing returns.
const pageLength = 2

// List requests one page after the other, like a store over a network. Changes between the
// requests are visible in some pages and not in others.
func (s stepped) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for after, more := "", true; more; {
			var page []backends.Object
			err := s.a.do("list", prefix, func() error {
				more = false
				for obj, err := range s.Backend.List(ctx, prefix) {
					switch {
					case err != nil:
						return err
					case obj.Key <= after:
					case len(page) == pageLength:
						more = true
						return nil
					default:
						page = append(page, obj)
					}
				}
				return nil
			})
			if err != nil {
				yield(backends.Object{}, err)
				return
			}
			for _, obj := range page {
				if after = obj.Key; !yield(obj, nil) {
					return
				}
			}
		}
	}
}

func (s stepped) Stat(ctx context.Context, key string) (obj backends.Object, err error) {
	err = s.a.do("stat", key, func() error { obj, err = s.Backend.Stat(ctx, key); return err })
	return obj, err
}

func (s stepped) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (r io.ReadCloser, err error) {
	err = s.a.do("read", obj.Key, func() error { r, err = s.Backend.OpenRange(ctx, obj, off, n); return err })
	return r, err
}

func (s stepped) Delete(ctx context.Context, key string) error {
	return s.a.do("delete", key, func() error { return s.Backend.Delete(ctx, key) })
}

func (s stepped) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	w, err := s.Backend.Create(ctx, key, opts)
	return steppedWriter{w, s.a, key}, err
}

type steppedWriter struct {
	backends.Writer
	a   doer
	key string
}

func (w steppedWriter) Commit(ctx context.Context) (obj backends.Object, err error) {
	err = w.a.do("put", w.key, func() error { obj, err = w.Writer.Commit(ctx); return err })
	return obj, err
}

// play runs the actors. choose picks the next of the waiting ones; if running is set, the first
// of them is the one that ran last. play returns the trace, one operation per line.
func play(b *mem.Backend, actors []*actor, choose func(waiting int, running bool) int) []string {
	var trace []string
	wait := func(a *actor) bool { _, more := <-a.asks; return more }
	var waiting []*actor
	for _, a := range actors {
		a.asks, a.turn, a.trace = make(chan string), make(chan struct{}), &trace
		go func() {
			defer close(a.asks)
			a.err = a.run(context.Background(), backends.NewStore(stepped{b, a}, "mem://test", backends.Options{Connections: 1, RetryFor: time.Millisecond}))
		}()
		if wait(a) {
			waiting = append(waiting, a)
		}
	}
	for running := false; len(waiting) > 0; {
		i := choose(len(waiting), running)
		a := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		a.turn <- struct{}{}
		if running = wait(a); running {
			waiting = slices.Insert(waiting, 0, a)
		} else {
			trace = append(trace, fmt.Sprintf("%-9s ends: %v", a.name, a.err))
		}
	}
	return trace
}

// scene is a set of actors whose schedules are explored.
type scene struct {
	name  string
	setup func(t *testing.T, b *mem.Backend)
	// actors returns new actors for each schedule, and a check to run afterwards.
	actors func(dir string) (actors []*actor, check func(b *mem.Backend) error)
}

// scratch returns a directory in memory if possible, because actors sync their files to the disk
// in each schedule.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "stager-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// explore plays a scene depth first with a limit on preemptions and at most most schedules, then
// random schedules. It returns the first schedule that breaks a promise.
func explore(t *testing.T, sc scene, preemptions, most, random int) (played int, broken string) {
	t.Helper()
	dir := scratch(t)
	once := func(choose func(int, bool) int) string {
		cryptotest.SetGlobalRandom(t, 24) // IDs determine the order of listings
		b := mem.New()
		sc.setup(t, b)
		at, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(at)
		actors, check := sc.actors(at)
		var trace []string
		if slices.ContainsFunc(actors, func(a *actor) bool { return a.overlaps }) {
			inBubble(t, func(t *testing.T) {
				for _, a := range actors {
					if a.before != nil {
						a.before(t, b)
					}
				}
				trace = playLanes(b, actors, choose)
			})
		} else {
			trace = play(b, actors, choose)
		}
		played++
		if err := check(b); err != nil {
			return fmt.Sprintf("%s: %v\n%s\n", sc.name, err, strings.Join(trace, "\n"))
		}
		return ""
	}
	type decision struct{ chosen, options, before int }
	var prefix []int
	for played < most {
		var made []decision
		used := 0
		broken := once(func(waiting int, running bool) int {
			chosen, options := 0, waiting
			if running && used >= preemptions {
				options = 1
			}
			if len(made) < len(prefix) {
				chosen = min(prefix[len(made)], waiting-1)
			}
			made = append(made, decision{chosen, options, used})
			if running && chosen > 0 {
				used++
			}
			return chosen
		})
		if broken != "" {
			return played, broken
		}
		last := len(made) - 1
		for last >= 0 && made[last].chosen+1 >= made[last].options {
			last--
		}
		if last < 0 {
			break
		}
		prefix = prefix[:0]
		for _, d := range made[:last] {
			prefix = append(prefix, d.chosen)
		}
		prefix = append(prefix, made[last].chosen+1)
	}
	for seed := range random {
		r := rand.New(rand.NewPCG(uint64(seed), 24))
		if broken := once(func(waiting int, _ bool) int { return r.IntN(waiting) }); broken != "" {
			return played, fmt.Sprintf("seed %d: %s", seed, broken)
		}
	}
	return played, ""
}

// TestInterleavingsKeepEveryPromise explores the scenes. The default form limits the number of
// schedules; STAGER_TRIAL=full raises the limits.
func TestInterleavingsKeepEveryPromise(t *testing.T) {
	preemptions, most, random := 2, 40, 10
	if os.Getenv("STAGER_TRIAL") == "full" {
		preemptions, most, random = 3, 12_000, 12_000
	}
	for name, sc := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			played, broken := explore(t, sc, preemptions, most, random)
			if broken != "" {
				t.Error(broken)
			}
			t.Logf("%d schedules, at most %d preemptions, in %v", played, preemptions, time.Since(began).Round(time.Millisecond))
		})
	}
}

// Each protection is disabled in turn, and the exploration finds the fault that it prevents.
func TestInterleavingsFindWhatEachProtectionPrevents(t *testing.T) {
	defer func() {
		weaken.tidyYoung, weaken.sweepYoung, weaken.forgetRefs, weaken.trustListing, weaken.unconditional = false, false, false, false, false
		weaken.cleanSaved, weaken.cleanHeld, weaken.unlocked = false, false, false
	}()
	for _, tt := range []struct {
		scene string
		off   *bool
		long  bool // found only after many schedules
	}{
		{"two writers", &weaken.tidyYoung, false},
		{"pruner", &weaken.sweepYoung, false},
		{"reference", &weaken.forgetRefs, true},
		{"restore", &weaken.trustListing, false},
		{"daemon", &weaken.sweepYoung, false},
		{"daemon, reference", &weaken.forgetRefs, false},
		{"replacement", &weaken.unconditional, true},
		{"replacement", &weaken.tidyYoung, true},
		{"fail", &weaken.unconditional, false},
		{"overlap, written again", &weaken.cleanSaved, false},
		{"overlap, written again", &weaken.unlocked, true},
		{"overlap, replaced", &weaken.cleanHeld, false},
		{"overlap, unguarded", &weaken.unlocked, false},
	} {
		if tt.long && os.Getenv("STAGER_TRIAL") != "full" {
			continue
		}
		if testing.Short() && tt.scene == "overlap, replaced" {
			continue // as long as all others together
		}
		t.Run(tt.scene, func(t *testing.T) {
			*tt.off = true
			defer func() { *tt.off = false }()
			played, broken := explore(t, scenes(t)[tt.scene], 2, 6000, 500)
			if broken == "" {
				t.Errorf("got no broken promise in %d schedules, want one", played)
			}
			t.Logf("found at schedule %d:\n%s", played, broken)
		})
	}
}
