package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// A second run of the same plan in the same directory went back to an earlier step and saved
// lower numbers than the first. They counted as older than those that the first run had sent.
// They were dropped at level INFO with exit code 0.
func TestCheckpointsAfterARollbackAreSent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		keepTwo := func(c *Config) { c.Keep = Keep{Last: 2} }
		save := func(u *Uploader, step int) {
			t.Helper()
			write(t, filepath.Join(dir, fmt.Sprintf("step-%d", step)), model(fmt.Sprint(step, time.Now())))
			settled(t, u)
		}
		first := newUploader(t, dir, b, keepTwo)
		for _, step := range []int{100, 200, 300} {
			save(first, step)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := newUploader(t, dir, b, keepTwo)
		for _, step := range []int{110, 120, 130} {
			save(second, step)
			if err := second.Wait(t.Context(), int64(step)); err != nil {
				t.Errorf("step %d of the second run: %v", step, err)
			}
			if got := commits(b); !slices.Contains(got, stepDir(int64(step), 0)) {
				t.Errorf("committed %v, want step %d among them", got, step)
			}
			if s := second.Status(); s.Committed == nil || s.Committed.Step != int64(step) || s.LagSeconds != 0 {
				t.Errorf("after step %d the status has %+v and a lag of %v s, want it committed and 0", step, s.Committed, s.LagSeconds)
			}
		}
		if err := second.Drain(t.Context(), Exit{Success: true, Gone: true}); err != nil {
			t.Errorf("drain: %v", err)
		}
	})
}

// Of several waiting checkpoints, the last one to be complete is sent first, whatever its number.
func TestUploadStartsWithNewestInTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		u := newUploader(t, t.TempDir(), mem.New(), nil)
		now := time.Now()
		u.snaps = map[int64]*snapshot{
			300: {Step: 300, Complete: now}, 110: {Step: 110, Complete: now.Add(2 * time.Second)},
			200: {Step: 200, Complete: now.Add(time.Second)}, 120: {Step: 120, Complete: now.Add(2 * time.Second)},
		}
		if got, want := u.pendingLocked(), []int64{120, 110, 200, 300}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		if u.waitsNewerLocked(u.snaps[120]) || !u.waitsNewerLocked(u.snaps[300]) {
			t.Error("step 300 makes way for a newer one, and step 120 does not")
		}
	})
}

// "stager commit" returned 0, so the trainer deleted its copy. The destination had other content
// under that step, and the snapshot, the only copy, was dropped.
func TestCommittedSnapshotIsHeldWhenTheDestinationRefusesIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		other := t.TempDir()
		write(t, other, model("of another run"))
		if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: other, Step: 5}); err != nil {
			t.Fatal(err)
		}
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "step-5"), model("5"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-5", Step: -1}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "step-5")); err != nil {
			t.Fatal(err)
		}
		pass(t, u)
		if err := u.Wait(t.Context(), 5); err == nil {
			t.Error("Wait says that the step is safe")
		}
		if f := u.Status().Failed; len(f) != 1 || f[0].Step != 5 {
			t.Errorf("failed %+v, want step 5", f)
		}
		err := u.Drain(t.Context(), Exit{Success: true, Gone: true})
		if err == nil || !strings.Contains(err.Error(), "step 5 (step-5) is not safe, and is held in "+dir) {
			t.Errorf("drain: %v, want where step 5 is held", err)
		}
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		// The user removes the other content and restarts stager.
		if err := b.Delete(t.Context(), stepDir(5, 0)+"/"+commitKey); err != nil {
			t.Fatal(err)
		}
		pass(t, newUploader(t, dir, b, nil))
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, model("5"))
	})
}

// A disk error while reading the description of a snapshot deleted the snapshot.
func TestSnapshotThatCannotBeReadStays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "step-5"), model("5"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-5", Step: -1}); err != nil {
			t.Fatal(err)
		}
		held := filepath.Join(dir, u.snapshots.dir(u.snaps[5]))
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		// Reading a directory in place of the file fails, like a bad sector.
		description := filepath.Join(held, "snapshot.json")
		if err := os.Rename(description, description+".saved"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(description, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := New(Config{Output: "ckpt", Dir: dir, Store: newStore(b)})
		if err == nil || !strings.Contains(err.Error(), "snapshot.json") || backends.KindOf(err) == backends.Invalid {
			t.Errorf("New: %v, want an error of the disk that names snapshot.json", err)
		}
		equal(t, "held", read(t, filepath.Join(held, dataDir)), model("5"))
	})
}
