package checkpoint

import (
	"context"
	"fmt"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// An older attempt never replaces the COMMIT of a newer one, which it did when it did not
// name the version that it had read.
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

// A writer dies at each of its operations, or its answer is lost, beside another one.
func TestInterleavingsWithACrashOrALostAnswer(t *testing.T) {
	two := scenes(t)["two writers"]
	for n := 1; n <= 14; n++ {
		for _, lose := range []bool{false, true} {
			sc := two
			sc.name = fmt.Sprintf("%s, operation %d, answer lost: %t", two.name, n, lose)
			sc.actors = func(dir string) ([]*actor, func(*mem.Backend) error) {
				actors, check := two.actors(dir)
				if lose {
					actors[0].loseAt = n
				} else {
					actors[0].crashAt = n
				}
				return actors, check
			}
			if _, broken := explore(t, sc, 1, 12, 2); broken != "" {
				t.Error(broken)
			}
		}
	}
}
