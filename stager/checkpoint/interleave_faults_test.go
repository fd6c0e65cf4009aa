package checkpoint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// An older attempt never replaces the COMMIT of a newer one. It did when it did not name the
// version that it had read.
func TestInterleavingsFindTheUnconditionalReplacement(t *testing.T) {
	base, dirs := t.TempDir(), []string{t.TempDir(), t.TempDir()}
	write(t, base, map[string]string{"w": "base"})
	for i, dir := range dirs {
		write(t, dir, map[string]string{"w": fmt.Sprint("attempt ", i+1)})
	}
	sc := scene{
		"an older and a newer attempt replace a step",
		func(t *testing.T, b *mem.Backend) { pushTo(t, b, 5, base) },
		func(string) ([]*actor, func(*mem.Backend) error) {
			var actors []*actor
			for i, dir := range dirs {
				actors = append(actors, &actor{name: fmt.Sprint("attempt ", i+1), run: func(ctx context.Context, store *backends.Store) error {
					_, err := PushCheckpoint(ctx, PushCheckpointConfig{Store: store, Path: dir, Step: 5, Conflict: ConflictOverwrite, Attempt: i + 1})
					return err
				}})
			}
			return actors, func(m *mem.Backend) error {
				c, err := readCommit(context.Background(), newStore(m), stepDir(5, 0))
				if err == nil && actors[1].err == nil && c.Attempt != 2 {
					err = fmt.Errorf("attempt %d replaced attempt 2", c.Attempt)
				}
				if err != nil {
					return err
				}
				return wrong(m, 5)
			}
		},
	}
	if _, broken := explore(t, sc, 2, 100, 20); broken != "" {
		t.Error(broken)
	}
	weaken.unconditional = true
	defer func() { weaken.unconditional = false }()
	if played, broken := explore(t, sc, 2, 2000, 200); broken == "" {
		t.Errorf("unconditional: got no broken promise in %d schedules, want one", played)
	}
}

// faultScenes are the scenes that are explored with faults.
var faultScenes = []string{"two writers", "fail", "same", "suffix", "pruner", "daemon", "daemon, reference", "replacement", "overlap", "overlap, written again", "overlap, unguarded", "overlap, replaced"}

// After faults, a prune that knows that no writer is active removes what they left, and every
// committed step stays complete.
func sweptAfterwards(check func(*mem.Backend) error) func(*mem.Backend) error {
	return func(m *mem.Backend) error {
		if err := check(m); err != nil {
			return err
		}
		before := commits(m)
		if _, err := Prune(context.Background(), PruneConfig{Store: newStore(m), Keep: Keep{Last: 99}}); err != nil {
			return err
		}
		if after := commits(m); !slices.Equal(after, before) {
			return fmt.Errorf("after a prune that keeps all there is %v, and there was %v", after, before)
		}
		return wrong(m)
	}
}

// Each actor is killed before or after each of its operations, or loses the response, while
// another one continues.
func TestInterleavingsWithOneFault(t *testing.T) {
	longest := 45 // no actor has more operations, except those with a cleanup beside
	most, random, full := 1, 0, os.Getenv("STAGER_TRIAL") == "full"
	if full {
		most, random = 40, 10
	}
	all := scenes(t)
	for _, name := range faultScenes {
		t.Run(name, func(t *testing.T) {
			began, total := time.Now(), 0
			actors, _ := all[name].actors(scratch(t))
			for who := range min(2, len(actors)) {
				for n := 1; n <= longest; n++ {
					for _, f := range []fault{killedBefore, killedAfter, answerLost} {
						if !full && int(f) != n%3 {
							continue // the short form explores one fault per operation
						}
						sc := all[name]
						sc.name = fmt.Sprintf("%s, actor %d, operation %d, fault %d", sc.name, who, n, f)
						sc.actors = func(dir string) ([]*actor, func(*mem.Backend) error) {
							actors, check := all[name].actors(dir)
							actors[who].faultAt, actors[who].fault = n, f
							return actors, sweptAfterwards(check)
						}
						played, broken := explore(t, sc, 1, most, random)
						if total += played; broken != "" {
							t.Fatal(broken)
						}
					}
				}
			}
			t.Logf("%d schedules in %v", total, time.Since(began).Round(time.Millisecond))
		})
	}
}

// Both actors have a fault, each at a random operation, in a random schedule.
func TestInterleavingsWithFaultsOfBoth(t *testing.T) {
	rounds := 25
	if os.Getenv("STAGER_TRIAL") == "full" {
		rounds = 10_000
	}
	all := scenes(t)
	for _, name := range faultScenes {
		t.Run(name, func(t *testing.T) {
			began, r := time.Now(), rand.New(rand.NewPCG(24, 24))
			sc := all[name]
			sc.actors = func(dir string) ([]*actor, func(*mem.Backend) error) {
				actors, check := all[name].actors(dir)
				for _, a := range actors[:min(2, len(actors))] {
					a.faultAt, a.fault = 1+r.IntN(30), fault(r.IntN(3))
				}
				return actors, sweptAfterwards(check)
			}
			played, broken := explore(t, sc, 0, 0, rounds)
			if broken != "" {
				t.Error(broken)
			}
			t.Logf("%d schedules in %v", played, time.Since(began).Round(time.Millisecond))
		})
	}
}
