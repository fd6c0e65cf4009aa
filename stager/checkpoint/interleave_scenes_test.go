package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// saved returns an actor that pushes a checkpoint.
func saved(t *testing.T, name string, step int64, conflict string, files map[string]string) func() *actor {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	return func() *actor {
		return &actor{name: name, text: files["w"], run: func(ctx context.Context, store *backends.Store) error {
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

// wrong returns an error if a destination breaks a promise at the end: a COMMIT without its data,
// or a missing step.
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

// succeeded returns the steps of the actors that succeeded.
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
	all := map[string]scene{
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
	maps.Copy(all, scenesOfConflict(t))
	maps.Copy(all, scenesOfDaemons(t))
	maps.Copy(all, scenesOfListings(t))
	maps.Copy(all, scenesOfOverlaps(t))
	return all
}

// scenesOfConflict have two writers of one step, for each conflict mode.
func scenesOfConflict(t *testing.T) map[string]scene {
	nothing := func(*testing.T, *mem.Backend) {}
	two := func(name, conflict, one, other string, check func(m *mem.Backend, a, b *actor) error) scene {
		first := saved(t, "first", 5, conflict, map[string]string{"w": one})
		second := saved(t, "second", 5, conflict, map[string]string{"w": other})
		return scene{name, nothing, func(string) ([]*actor, func(*mem.Backend) error) {
			a, b := first(), second()
			return []*actor{a, b}, func(m *mem.Backend) error { return errors.Join(wrong(m), check(m, a, b)) }
		}}
	}
	return map[string]scene{
		"fail": two("two writers of one step, of which the second fails", ConflictFail, "one", "two", func(m *mem.Backend, a, b *actor) error {
			for _, w := range []*actor{a, b} {
				if other := map[*actor]*actor{a: b, b: a}[w]; w.err == nil && (other.err == nil || !slices.Equal(texts(m), []string{w.text})) {
					return fmt.Errorf("%s reports success, %s ends with %v, and the store has %q", w.name, other.name, other.err, texts(m))
				}
				if w.faultAt == 0 && w.err != nil && !errors.Is(w.err, errConflict) {
					return fmt.Errorf("%s ends with %w, want success or a conflict", w.name, w.err)
				}
			}
			if a.faultAt+b.faultAt == 0 && a.err != nil && b.err != nil {
				return fmt.Errorf("both fail: %w", errors.Join(a.err, b.err))
			}
			return nil
		}),
		"same": two("two writers of the same bytes", ConflictFail, "same", "same", func(m *mem.Backend, a, b *actor) error {
			return allSucceed(m, a, b)
		}),
		"suffix": two("two writers of one step, one beside the other", ConflictSuffix, "one", "two", func(m *mem.Backend, a, b *actor) error {
			return allSucceed(m, a, b)
		}),
	}
}

// allSucceed checks that actors without faults succeed, and that what an actor reports as saved
// exists.
func allSucceed(m *mem.Backend, actors ...*actor) error {
	for _, a := range actors {
		if a.faultAt == 0 && a.err != nil {
			return fmt.Errorf("%s ends with %w", a.name, a.err)
		}
		if a.err == nil && !slices.Contains(texts(m), a.text) {
			return fmt.Errorf("%s reports success, and the store has only %q", a.name, texts(m))
		}
	}
	return nil
}

// texts returns the contents of the file "w" of each committed step.
func texts(m *mem.Backend) (texts []string) {
	for _, dir := range commits(m) {
		c, err := readCommit(context.Background(), newStore(m), dir)
		for _, f := range c.Files {
			if text, _ := m.Get(c.key(dir, f)); err == nil && f.Path == "w" {
				texts = append(texts, string(text))
			}
		}
	}
	return texts
}

// daemon is an actor that saves an output with one checkpoint, and then applies the retention of
// cfg.
func daemon(t *testing.T, dir, name string, step int64, cfg Config) *actor {
	t.Helper()
	cfg.Dir, cfg.Output = filepath.Join(dir, name), name
	ready(t, cfg.Dir, fmt.Sprint("step-", step), "of "+name)
	return &actor{name: name, text: "of " + name, run: func(ctx context.Context, store *backends.Store) error {
		cfg := cfg
		cfg.Store = store
		u, err := New(cfg)
		if err != nil {
			return err
		}
		defer u.Close()
		if err := u.Sync(ctx); err != nil {
			return err
		}
		u.mu.Lock()
		known, _, err := u.fateLocked(step)
		u.mu.Unlock()
		if !known {
			err = fmt.Errorf("it is not known whether step %d is saved", step)
		}
		return err
	}}
}

// scenesOfDaemons are those of stager run: it saves, and then applies its own retention.
func scenesOfDaemons(t *testing.T) map[string]scene {
	old := t.TempDir()
	write(t, old, map[string]string{"base": "frozen", "w": "old"})
	first := saved(t, "first", 5, ConflictOverwrite, map[string]string{"w": "one"})
	refers := saved(t, "refers", 4, ConflictFail, map[string]string{"base": "frozen", "w": "new"})
	return map[string]scene{
		"daemon": {
			"a writer of an older step beside a daemon's retention", func(*testing.T, *mem.Backend) {},
			func(dir string) ([]*actor, func(*mem.Backend) error) {
				a, d := first(), daemon(t, dir, "daemon", 9, Config{Keep: Keep{Last: 9}})
				return []*actor{a, d}, func(m *mem.Backend) error {
					return errors.Join(wrong(m, succeeded(map[*actor]int64{a: 5, d: 9})...), allSucceed(m, a, d))
				}
			},
		},
		"daemon, reference": {
			"a writer that refers to a step that a daemon removes", func(t *testing.T, b *mem.Backend) { pushTo(t, b, 2, old) },
			func(dir string) ([]*actor, func(*mem.Backend) error) {
				a, d := refers(), daemon(t, dir, "daemon", 9, Config{Keep: Keep{Last: 1}})
				return []*actor{a, d}, func(m *mem.Backend) error { return wrong(m, succeeded(map[*actor]int64{d: 9})...) }
			},
		},
		"replacement": {
			"an old pod that drains beside its replacement", func(t *testing.T, b *mem.Backend) { pushTo(t, b, 5, old) },
			func(dir string) ([]*actor, func(*mem.Backend) error) {
				a := daemon(t, dir, "old", 5, Config{Keep: Keep{Last: 9}, Conflict: ConflictOverwrite, Attempt: 1})
				b := daemon(t, dir, "new", 5, Config{Keep: Keep{Last: 9}, Conflict: ConflictOverwrite, Attempt: 2})
				return []*actor{a, b}, func(m *mem.Backend) error {
					if b.err == nil && !slices.Equal(texts(m), []string{b.text}) {
						return fmt.Errorf("the replacement reports success, and the store has %q", texts(m))
					}
					if b.faultAt == 0 && b.err != nil {
						return fmt.Errorf("the replacement ends with %w", b.err)
					}
					return wrong(m, 5)
				}
			},
		},
	}
}
