package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// scenesOfListings have an actor that lists steps and then reads their COMMITs, besides a writer
// and a retention. Regression: a step that was removed in between was reported as damaged, with
// exit code 76, and nodes did not reach a restore agreement.
func scenesOfListings(t *testing.T) map[string]scene {
	other := t.TempDir()
	write(t, other, map[string]string{"w": "other"})
	newer := saved(t, "newer", 3, ConflictFail, map[string]string{"w": "three"})
	again := saved(t, "again", 2, ConflictOverwrite, map[string]string{"w": "two"})
	beside := func(name string, run func(ctx context.Context, store *backends.Store) error) scene {
		return scene{
			name, func(t *testing.T, b *mem.Backend) { pushTo(t, b, 2, other) },
			func(string) ([]*actor, func(*mem.Backend) error) {
				reader := &actor{name: "reader", run: run}
				return []*actor{reader, again(), newer(), pruner(1)}, func(*mem.Backend) error { return reader.err }
			},
		}
	}
	return map[string]scene{
		"steps": beside("a list of steps", func(ctx context.Context, store *backends.Store) error {
			infos, err := Steps(ctx, store)
			for _, info := range infos {
				if info.Problem != "" {
					err = errors.Join(err, fmt.Errorf("step %d: %s", info.Step, info.Problem))
				}
			}
			return err
		}),
		"verify": beside("reading all bytes of a step", func(ctx context.Context, store *backends.Store) error {
			if err := Verify(ctx, store, stepDir(2, 0), func(int64) {}); !errors.Is(err, ErrRemoved) {
				return err
			}
			return nil
		}),
		"newest": beside("what nodes agree to restore", func(ctx context.Context, store *backends.Store) error {
			found, err := newestStep(ctx, store, slog.New(slog.DiscardHandler))
			if err == nil && found == (group.Found{}) {
				err = errors.New("no checkpoint is found")
			}
			return err
		}),
	}
}
