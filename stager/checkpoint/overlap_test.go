package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// In these scenes the cleanup of a process runs beside its sender. Each operation of one may come
// between any two operations of the other, and of other processes.

// lanes schedules the operations of actors with several goroutines. It needs a bubble, which reports
// when all goroutines wait.
type lanes struct {
	mu      sync.Mutex // guards all below
	waiting []*request
	asked   chan struct{} // receives when something waits again, or an actor has ended
	running int           // actors
}

// request is an operation that waits for its turn.
type request struct {
	a    *actor
	lane string
	turn chan struct{}
}

func (l *lanes) do(a *actor, lane, op, key string, f func() error) error {
	l.mu.Lock()
	if a.dead {
		l.mu.Unlock()
		return errCrashed
	}
	r := &request{a, lane, make(chan struct{})}
	l.waiting = append(l.waiting, r)
	l.mu.Unlock()
	l.signal()
	<-r.turn
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.dead {
		return errCrashed
	}
	a.ops++
	return a.take(a.ops, lane+op, key, f)
}

func (l *lanes) signal() {
	select {
	case l.asked <- struct{}{}:
	default:
	}
}

// cleaner is the cleanup of an actor.
type cleaner struct{ a *actor }

func (c cleaner) do(op, key string, f func() error) error {
	return c.a.lanes.do(c.a, "~", op, key, f)
}

// playLanes is like play. It must run in a bubble.
func playLanes(b *mem.Backend, actors []*actor, choose func(waiting int, running bool) int) []string {
	var trace []string
	l := &lanes{asked: make(chan struct{}, 1), running: len(actors)}
	for _, a := range actors {
		a.lanes, a.trace = l, &trace
		go func() {
			a.err = a.run(context.Background(), backends.NewStore(stepped{b, a}, "mem://test", backends.Options{Connections: 1, RetryFor: time.Millisecond}))
			l.mu.Lock()
			l.running--
			trace = append(trace, fmt.Sprintf("%-9s ends: %v", a.name, a.err))
			l.mu.Unlock()
			l.signal()
		}()
	}
	for last := (request{}); ; {
		synctest.Wait()
		l.mu.Lock()
		if len(l.waiting) == 0 {
			over := l.running == 0
			l.mu.Unlock()
			if over {
				return trace
			}
			<-l.asked // time passes meanwhile
			continue
		}
		again := func(r *request) bool { return r.a == last.a && r.lane == last.lane }
		slices.SortStableFunc(l.waiting, func(x, y *request) int {
			switch {
			case again(x) == again(y):
				return slices.Index(actors, x.a) - slices.Index(actors, y.a)
			case again(x):
				return -1
			}
			return 1
		})
		i := choose(len(l.waiting), again(l.waiting[0]))
		r := l.waiting[i]
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.mu.Unlock()
		last = *r
		close(r.turn)
	}
}

// unguarded is a store without conditional writes.
type unguarded struct{ backends.Backend }

func (b unguarded) Capabilities() backends.Capabilities {
	c := b.Backend.Capabilities()
	c.ConditionalCreate, c.Guard = false, backends.GuardNone
	return c
}

func (b unguarded) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	opts.IfAbsent, opts.IfVersion = false, ""
	return b.Backend.Create(ctx, key, opts)
}

// busyDaemon is an actor that sends checkpoints one after the other while its cleanup runs. Each
// is the name of a directory and its files.
func busyDaemon(t *testing.T, dir string, guarded bool, cfg Config, checkpoints ...saves) *actor {
	t.Helper()
	cfg.Dir, cfg.Output = filepath.Join(dir, "out"), "out"
	a := &actor{name: "daemon", overlaps: true}
	a.run = func(ctx context.Context, store *backends.Store) error {
		cleans := backends.Backend(stepped{store2(store), cleaner{a}})
		if !guarded {
			store = backends.NewStore(unguarded{stepped{store2(store), a}}, "mem://test", backends.Options{Connections: 1, RetryFor: time.Millisecond})
			cleans = unguarded{cleans}
		}
		cfg := cfg
		cfg.Store = store
		u, err := New(cfg)
		if err != nil {
			return err
		}
		defer u.Close()
		u.cleanup.store = backends.NewStore(cleans, "mem://test", backends.Options{Connections: 2, RetryFor: time.Millisecond})
		for _, c := range checkpoints {
			if err := a.do("train", c.name, func() error { return nil }); err != nil {
				return err
			}
			write(t, filepath.Join(cfg.Dir, c.name), c.files)
			if !c.quiet {
				write(t, filepath.Join(cfg.Dir, c.name), map[string]string{markerName: ""})
			}
			if err = errors.Join(err, u.scan(false)); c.later {
				time.Sleep(time.Second)
				continue
			}
			if c.quiet {
				time.Sleep(u.cfg.QuietPeriod)
				err = errors.Join(err, u.scan(false))
			}
			err = errors.Join(err, u.send(ctx, false))
			u.mu.Lock()
			known, _, fate := u.fateLocked(c.step)
			u.mu.Unlock()
			if !known && !c.quiet {
				fate = fmt.Errorf("it is not known whether step %d is saved", c.step)
			}
			if !errors.As(fate, new(*ProvisionalError)) {
				err = errors.Join(err, fate)
			}
		}
		u.cleanup.wait(ctx)
		return err
	}
	return a
}

type saves struct {
	name  string
	step  int64
	files map[string]string
	quiet bool // nothing says that it is complete
	later bool // it is sent with the next one
}

func save(step int64, files map[string]string) saves {
	return saves{name: fmt.Sprint("step-", step), step: step, files: files}
}

func quiet(step int64, files map[string]string) saves {
	s := save(step, files)
	s.quiet = true
	return s
}

func later(step int64, files map[string]string) saves {
	s := save(step, files)
	s.later = true
	return s
}

// store2 returns the store below a stepped one.
func store2(s *backends.Store) backends.Backend {
	b, _ := s.Backend()
	return b.(stepped).Backend
}

func scenesOfOverlaps(t *testing.T) map[string]scene {
	old := t.TempDir()
	write(t, old, map[string]string{"base": "frozen", "w": "old"})
	files := func(w string) map[string]string { return map[string]string{"base": "frozen", "w": w} }
	nothing := func(*testing.T, *mem.Backend) {}
	before := func(t *testing.T, b *mem.Backend) { pushTo(t, b, 1, old) }
	refers := saved(t, "refers", 2, ConflictFail, files("beside"))
	// ends checks that the store has the last checkpoint, and without a fault just the given steps.
	ends := func(m *mem.Backend, d *actor, last saves, steps ...int64) error {
		if d.err == nil && !slices.Contains(texts(m), last.files["w"]) {
			return fmt.Errorf("the store has %q, want %q", texts(m), last.files["w"])
		}
		if d.faultAt > 0 {
			return wrong(m, succeeded(map[*actor]int64{d: last.step})...)
		}
		var dirs []string
		for _, step := range steps {
			dirs = append(dirs, stepDir(step, 0))
		}
		switch got := commits(m); {
		case d.err != nil:
			return fmt.Errorf("the daemon ends with %w", d.err)
		case !slices.Equal(got, dirs):
			return fmt.Errorf("committed are %v at the end, want %v", got, dirs)
		}
		return wrong(m, steps...)
	}
	overlap := func(name string, setup func(*testing.T, *mem.Backend), guarded bool, cfg Config, steps []int64, list ...saves) scene {
		return scene{name, nothing, func(dir string) ([]*actor, func(*mem.Backend) error) {
			d := busyDaemon(t, dir, guarded, cfg, list...)
			d.before = setup
			return []*actor{d}, func(m *mem.Backend) error { return ends(m, d, list[len(list)-1], steps...) }
		}}
	}
	one := Config{Keep: Keep{Last: 1}}
	all := map[string]scene{
		"overlap": overlap("a cleanup beside the sending of the next steps", before, true, one, []int64{4},
			save(2, files("two")), save(3, files("three")), save(4, files("four"))),
		"overlap, written again": overlap("a cleanup that removes a step which is written again", before, true, one, []int64{2, 3},
			save(2, files("two")), save(3, files("three")), save(2, files("again"))),
		"overlap, unguarded": overlap("the same in a store without conditional writes", nothing, false, one, []int64{2, 3},
			save(2, files("two")), save(3, files("three")), save(2, files("again"))),
		"overlap, clock": overlap("a cleanup of a process whose clock is behind, after a rollback", func(t *testing.T, b *mem.Backend) { ahead(t, b, 9) }, true, one, []int64{3, 9},
			save(7, files("seven")), save(5, files("five")), save(3, files("three"))),
		"overlap, provisional": overlap("a cleanup that makes a step final which is written again, without conditional writes", nothing, false, Config{}, []int64{2, 3},
			quiet(2, files("two")), quiet(3, files("three")), save(2, files("again"))),
		"overlap, replaced": overlap("a cleanup that lists an upload which is committed, referred to and replaced before it removes", nothing, true, Config{}, []int64{2, 3, 5},
			save(5, files("five")), later(2, map[string]string{"base": "thawed"}),
			save(5, files("five again")), save(3, map[string]string{"base": "thawed"}), save(2, files("again"))),
	}
	all["overlap, reference"] = scene{
		"a writer that refers to a step which the cleanup of a daemon removes, while the daemon sends another one", nothing,
		func(dir string) ([]*actor, func(*mem.Backend) error) {
			a := refers()
			d := busyDaemon(t, dir, true, one, save(8, map[string]string{"w": "eight"}), save(9, map[string]string{"w": "nine"}))
			d.before = before
			return []*actor{a, d}, func(m *mem.Backend) error {
				return wrong(m, succeeded(map[*actor]int64{d: 9})...)
			}
		},
	}
	return all
}
