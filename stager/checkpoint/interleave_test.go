package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// Several processes at one destination, in every order of their store operations: a
// scheduler lets one operation of one actor happen at a time. Schedules are explored depth
// first with a bound on preemptions, then at random.

// actor is one process at the destination.
type actor struct {
	name    string
	run     func(ctx context.Context, store *backends.Store) error
	crashAt int // the operation, counted from 1, at which it dies; 0: none
	loseAt  int // the operation whose answer is lost; 0: none

	ops   int
	asks  chan string // an operation that waits for its turn; closed at the end
	turn  chan struct{}
	err   error
	dead  bool
	trace *[]string
}

var errCrashed = backends.Errorf(backends.Permission, "", "", "the process was killed")

// do waits for the actor's turn and makes one operation.
func (a *actor) do(op, key string, f func() error) error {
	if a.dead {
		return errCrashed
	}
	a.ops++
	n := a.ops
	a.asks <- op + " " + key
	<-a.turn
	if n == a.crashAt {
		a.dead = true
		*a.trace = append(*a.trace, fmt.Sprintf("%-9s %-6s %s: killed", a.name, op, key))
		return errCrashed
	}
	err := f()
	result := "ok"
	if err != nil {
		result = backends.KindOf(err).String()
	}
	if n == a.loseAt {
		err, result = backends.Errorf(backends.Permission, op, key, "the answer was lost"), result+", and the answer is lost"
	}
	*a.trace = append(*a.trace, fmt.Sprintf("%-9s %-6s %s: %s", a.name, op, key, result))
	return err
}

// stepped is the destination as an actor sees it.
type stepped struct {
	backends.Backend
	a *actor
}

func (s stepped) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		var objs []backends.Object
		err := s.a.do("list", prefix, func() error {
			for obj, err := range s.Backend.List(ctx, prefix) {
				if err != nil {
					return err
				}
				objs = append(objs, obj)
			}
			return nil
		})
		for _, obj := range objs {
			if err == nil && !yield(obj, nil) {
				return
			}
		}
		if err != nil {
			yield(backends.Object{}, err)
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
	a   *actor
	key string
}

func (w steppedWriter) Commit(ctx context.Context) (obj backends.Object, err error) {
	err = w.a.do("put", w.key, func() error { obj, err = w.Writer.Commit(ctx); return err })
	return obj, err
}

// play runs the actors; choose picks the next of those that wait, of which the first is
// the one that ran last, if running. It returns what happened, one operation a line.
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

// scene is what a schedule is explored for.
type scene struct {
	name  string
	setup func(t *testing.T, b *mem.Backend)
	// actors are new ones for each schedule; the check afterwards says what is wrong.
	actors func(dir string) (actors []*actor, check func(b *mem.Backend) error)
}

// explore plays a scene depth first with at most so many preemptions, and at most most
// schedules, then random ones. It returns the first schedule that breaks a promise.
func explore(t *testing.T, sc scene, preemptions, most, random int) (played int, broken string) {
	t.Helper()
	dir := t.TempDir()
	once := func(choose func(int, bool) int) string {
		b := mem.New()
		sc.setup(t, b)
		at, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(at)
		actors, check := sc.actors(at)
		trace := play(b, actors, choose)
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
				chosen = prefix[len(made)]
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

// saved is a checkpoint that an actor pushes.
func saved(t *testing.T, name string, step int64, conflict string, files map[string]string) func() *actor {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	return func() *actor {
		return &actor{name: name, run: func(ctx context.Context, store *backends.Store) error {
			_, err := PushCheckpoint(ctx, PushCheckpointConfig{Store: store, Path: dir, Step: step, Conflict: conflict})
			return err
		}}
	}
}

func pruner(last int) *actor {
	return &actor{name: "pruner", run: func(ctx context.Context, store *backends.Store) error {
		_, err := Prune(ctx, PruneConfig{Store: store, Keep: Keep{Last: last}, Abandoned: Abandoned})
		return err
	}}
}

// wrong says which promise a destination breaks at the end: a COMMIT without its data, or
// a step that should be there and is not.
func wrong(b *mem.Backend, steps ...int64) error {
	store := newStore(b)
	for _, dir := range commits(b) {
		if err := Verify(context.Background(), store, dir, func(int64) {}); err != nil {
			return fmt.Errorf("a COMMIT without its data: %w", err)
		}
	}
	for _, step := range steps {
		if !slices.Contains(commits(b), stepDir(step, 0)) {
			return fmt.Errorf("step %d was reported as committed, and is not there", step)
		}
	}
	return nil
}

// succeeded are the steps of the actors that ended well.
func succeeded(actors map[*actor]int64) (steps []int64) {
	for a, step := range actors {
		if a.err == nil && !a.dead {
			steps = append(steps, step)
		}
	}
	return steps
}

func pushTo(t *testing.T, b *mem.Backend, step int64, dir string) {
	t.Helper()
	if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: dir, Step: step}); err != nil {
		t.Fatal(err)
	}
}

func scenes(t *testing.T) map[string]scene {
	one := map[string]string{"w": "one"}
	old, other := t.TempDir(), t.TempDir()
	write(t, old, map[string]string{"base": "frozen", "w": "old"})
	write(t, other, map[string]string{"w": "other"})
	first := saved(t, "first", 5, ConflictOverwrite, one)
	second := saved(t, "second", 5, ConflictOverwrite, map[string]string{"w": "two"})
	refers := saved(t, "refers", 4, ConflictFail, map[string]string{"base": "frozen", "w": "new"})
	newer := saved(t, "newer", 3, ConflictFail, map[string]string{"w": "three"})
	return map[string]scene{
		"two writers": {"two writers of one step", func(*testing.T, *mem.Backend) {}, func(string) ([]*actor, func(*mem.Backend) error) {
			a, b := first(), second()
			return []*actor{a, b}, func(m *mem.Backend) error { return wrong(m, succeeded(map[*actor]int64{a: 5, b: 5})...) }
		}},
		"pruner": {
			"a writer of an older step beside a retention", func(t *testing.T, b *mem.Backend) { pushTo(t, b, 9, other) },
			func(string) ([]*actor, func(*mem.Backend) error) {
				a := first()
				return []*actor{a, pruner(9)}, func(m *mem.Backend) error { return wrong(m, append(succeeded(map[*actor]int64{a: 5}), 9)...) }
			},
		},
		"reference": {
			"a writer that refers to a step that goes", func(t *testing.T, b *mem.Backend) { pushTo(t, b, 2, old) },
			func(string) ([]*actor, func(*mem.Backend) error) {
				a := refers()
				return []*actor{a, newer(), pruner(1)}, func(m *mem.Backend) error { return wrong(m, succeeded(map[*actor]int64{a: 4})...) }
			},
		},
		"restore": {
			"a restore beside a writer and a retention", func(t *testing.T, b *mem.Backend) { pushTo(t, b, 2, other) },
			func(dir string) ([]*actor, func(*mem.Backend) error) {
				var got Restored
				r := &actor{name: "restore"}
				r.run = func(ctx context.Context, store *backends.Store) (err error) {
					got, err = Restore(ctx, RestoreConfig{Store: store, Dir: filepath.Join(dir, "x"), Step: Newest, Parallel: 1})
					return err
				}
				return []*actor{r, newer(), pruner(1)}, func(m *mem.Backend) error {
					if r.err != nil || got.Step < 2 || len(got.FellBackFrom) > 0 {
						return fmt.Errorf("restored %+v: %w", got, errors.Join(r.err, wrong(m)))
					}
					return wrong(m)
				}
			},
		},
	}
}

// TestInterleavingsKeepEveryPromise explores the scenes: the default form is bounded by a
// number of schedules, STAGER_TRIAL=full by larger ones.
func TestInterleavingsKeepEveryPromise(t *testing.T) {
	preemptions, most, random := 2, 130, 20
	if os.Getenv("STAGER_TRIAL") == "full" {
		preemptions, most, random = 3, 6000, 2000
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

// Each protection is turned off in turn, and the exploration finds what it prevents.
func TestInterleavingsFindWhatEachProtectionPrevents(t *testing.T) {
	defer func() {
		weaken.tidyYoung, weaken.sweepYoung, weaken.forgetRefs, weaken.trustListing = false, false, false, false
	}()
	for _, tt := range []struct {
		scene string
		off   *bool
	}{
		{"two writers", &weaken.tidyYoung},
		{"pruner", &weaken.sweepYoung},
		{"reference", &weaken.forgetRefs},
		{"restore", &weaken.trustListing},
	} {
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
