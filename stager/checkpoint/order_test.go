package checkpoint

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// Restore took the highest number. After a rollback to step 100 that saved step 150, it restored
// step 200 of the abandoned run.
func TestRestoreTakesStepCommittedLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		for _, step := range []int64{100, 200, 150} {
			dir := t.TempDir()
			write(t, dir, model(fmt.Sprint(step)))
			if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: dir, Step: step}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		done, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: filepath.Join(t.TempDir(), "to"), Step: Newest, Node: AnyNode})
		if err != nil || done.Step != 150 {
			t.Errorf("got step %d, %v, want step 150", done.Step, err)
		}
		removed, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Keep: Keep{Last: 1}})
		if got := commits(b); err != nil || !slices.Equal(got, []string{stepDir(150, 0), stepDir(200, 0)}) {
			t.Errorf("after a retention of one step there are %v (removed %+v, %v), want step 150, and the highest", got, removed, err)
		}
	})
}

// Restoring steps that were committed in order costs the same as before steps were ordered by
// their COMMITs: one listing, one COMMIT.json, and the data.
func TestRestoreInOrderReadsOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, faults := mem.New(), new(conformance.Faults)
		for step := range int64(5) {
			dir := t.TempDir()
			write(t, dir, model(fmt.Sprint(step)))
			if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: dir, Step: step}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		store := backends.NewStore(faults.Wrap(b), "mem://test", backends.Options{})
		if _, err := Restore(t.Context(), RestoreConfig{Store: store, Dir: filepath.Join(t.TempDir(), "to"), Step: Newest, Node: AnyNode}); err != nil {
			t.Fatal(err)
		}
		got := [2]int{len(faults.Calls(conformance.List)), len(faults.Calls(conformance.Read))}
		if want := [2]int{2, 3}; got != want {
			t.Errorf("got %v listings and reads, want %v", got, want)
		}
	})
}

func TestOrderOfCommits(t *testing.T) {
	at := func(minutes float64) time.Time {
		return time.Unix(1e9, 0).Add(time.Duration(minutes * float64(time.Minute)))
	}
	save := func(job string, seq int64, number int) *group.Joined {
		return &group.Joined{Job: job, Seq: seq, Save: number}
	}
	for _, tt := range []struct {
		name        string
		lower, high commitOrder
		want        bool // the lower step is newer
	}{
		{"in order", commitOrder{created: at(0), modified: at(0)}, commitOrder{created: at(1), modified: at(1)}, false},
		{"a rollback", commitOrder{created: at(2), modified: at(2)}, commitOrder{created: at(1), modified: at(1)}, true},
		{"the clock of the first writer is ahead", commitOrder{created: at(4), modified: at(0)}, commitOrder{created: at(1), modified: at(1)}, false},
		{"the lower COMMIT was replaced", commitOrder{created: at(0), modified: at(9)}, commitOrder{created: at(1), modified: at(1)}, false},
		{"the higher COMMIT was replaced after a rollback", commitOrder{created: at(7), modified: at(7)}, commitOrder{created: at(1), modified: at(9)}, true},
		{"copied after a rollback", commitOrder{created: at(10), modified: at(100)}, commitOrder{created: at(1), modified: at(101)}, true},
		{"saves of one view", commitOrder{group: save("j", 1, 3), created: at(0), modified: at(0)}, commitOrder{group: save("j", 1, 2), created: at(1), modified: at(1)}, true},
		{"saves of two views", commitOrder{group: save("j", 1, 9), created: at(3), modified: at(3)}, commitOrder{group: save("j", 2, 1), created: at(1), modified: at(1)}, false},
		{"saves of two jobs", commitOrder{group: save("j", 1, 9), created: at(0), modified: at(0)}, commitOrder{group: save("k", 1, 1), created: at(1), modified: at(1)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := tt.lower, tt.high
			a.step, b.step = 1, 2
			if got := a.after(&b); got != tt.want {
				t.Errorf("got that the lower step is newer: %v, want %v", got, tt.want)
			}
			if got := b.after(&a); got == tt.want {
				t.Errorf("got that the higher step is newer: %v, want %v", got, !tt.want)
			}
			if tt.want && tt.lower.group == nil && !b.mayBeBefore(a.modified) {
				t.Error("got that a listing tells that the lower step is older, want that its COMMIT is read")
			}
		})
	}
}
