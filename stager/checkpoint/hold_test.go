package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/backends/sys"
)

// A checkpoint that is likely to be overwritten in place is held as a copy. Without room for the
// copy, the commit is refused before a byte is copied, and nothing is left behind.
func TestCommitWithoutRoomIsRefusedAtOnce(t *testing.T) {
	for name, spoil := range map[string]func(*snapshotDir){
		"too little is free": func(s *snapshotDir) { s.free = func(*os.Root) (int64, error) { return 3, nil } },
		"the disk is full": func(s *snapshotDir) {
			s.clone = func(*os.File, *os.File) error { return unix.ENOSPC }
			s.free = func(*os.Root) (int64, error) { return 0, nil }
		},
		"no name can be made": func(s *snapshotDir) {
			s.clone = func(_, from *os.File) error { return &os.PathError{Op: "write", Path: from.Name(), Err: unix.EDQUOT} }
			s.free = func(*os.Root) (int64, error) { return 0, &os.PathError{Op: "statfs", Path: ".", Err: unix.EDQUOT} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			u := newUploader(t, dir, b, nil)
			u.snapshots.clone = func(*os.File, *os.File) error { return unix.EOPNOTSUPP }
			spoil(u.snapshots)
			write(t, dir, map[string]string{"last.pt": "in place"})
			_, err := u.Commit(t.Context(), CommitRequest{Path: "last.pt", Step: 7})
			if backends.KindOf(err) != backends.NoSpace || !strings.Contains(fmt.Sprint(err), "free some space") {
				t.Errorf("got %v, want no space and what to do", err)
			}
			if held := heldEarly(t, dir); len(held) > 0 {
				t.Errorf("left behind %v", held)
			}
			if s := u.Status(); len(s.Pending) > 0 {
				t.Errorf("pending %v, want nothing: it was refused", s.Pending)
			}
			// With room, the same request succeeds.
			u.snapshots.clone, u.snapshots.free = sys.Clone, func(*os.Root) (int64, error) { return 1 << 30, nil }
			if _, err := u.Commit(t.Context(), CommitRequest{Path: "last.pt", Step: 7}); err != nil {
				t.Errorf("with room: %v", err)
			}
		})
	}
}

// A directory whose files fit one by one, but not all together, is refused before the first copy.
func TestCommitCountsAllFilesBeforeTheFirstCopy(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, nil)
	u.snapshots.clone = func(*os.File, *os.File) error { return unix.EOPNOTSUPP }
	asked := 0
	u.snapshots.free = func(*os.Root) (int64, error) { asked++; return 10, nil }
	write(t, filepath.Join(dir, "last"), map[string]string{"a.pt": "12345678", "b.pt": "12345678"})
	if _, err := u.Commit(t.Context(), CommitRequest{Path: "last", Step: 7}); backends.KindOf(err) != backends.NoSpace {
		t.Errorf("got %v, want no space", err)
	}
	if asked != 1 {
		t.Errorf("free space was looked up %d times, want once: a file was copied", asked)
	}
}

// Each accepted commit of a file that is overwritten in place is saved in its state at that time.
// Regression: five of six were lost.
func TestCommitsOfAFileThatIsOverwrittenInPlaceAreSaved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		const commitsMade = 6
		for i := range commitsMade {
			write(t, dir, map[string]string{"last.pt": zipped(t, fmt.Sprint("state ", i))})
			when := time.Unix(1_800_000_000+int64(i), 0)
			if err := os.Chtimes(filepath.Join(dir, "last.pt"), when, when); err != nil {
				t.Fatal(err)
			}
			if _, err := u.Commit(t.Context(), CommitRequest{Path: "last.pt", Step: -1}); err != nil {
				t.Fatal(err)
			}
		}
		write(t, dir, map[string]string{"last.pt": "torn"})
		pass(t, u)
		settled(t, u)
		if got := len(commits(b)); got != commitsMade {
			t.Fatalf("committed %v, want %d steps; failed %v", commits(b), commitsMade, u.Status().Failed)
		}
		for i := range commitsMade {
			step := (1_800_000_000 + int64(i)) * 1000
			restored := filepath.Join(t.TempDir(), "r")
			if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: restored, Step: step}); err != nil {
				t.Errorf("step %d: %v", step, err)
				continue
			}
			if got := read(t, restored)["last.pt"]; got != zipped(t, fmt.Sprint("state ", i)) {
				t.Errorf("step %d: got %.40q, want state %d", step, got, i)
			}
		}
	})
}

// Config.Hold sets the budget of early holds.
func TestEarlyHoldsFollowTheConfig(t *testing.T) {
	for _, c := range []struct {
		Hold
		free int64
		want int
	}{
		{Hold{Checkpoints: 0, Percent: 25}, 1 << 20, 0},
		{Hold{Checkpoints: 1, Percent: 25}, 1 << 20, 1},
		{Hold{Checkpoints: 4, Percent: 25}, 1 << 20, 4},
		{Hold{Checkpoints: 4, Percent: 25}, 800, 2}, // 100 bytes each
		{Hold{Checkpoints: 4, Percent: 50}, 600, 3},
		{Hold{Checkpoints: 4, Percent: 100}, 99, 0},
	} {
		inBubble(t, func(t *testing.T) {
			dir := t.TempDir()
			u := newUploader(t, dir, mem.New(), func(cfg *Config) { cfg.Hold = &c.Hold })
			u.snapshots.free = func(*os.Root) (int64, error) { return c.free, nil }
			for i := range 5 {
				write(t, filepath.Join(dir, fmt.Sprintf("step-%d", i)), map[string]string{"model-00001-of-00002.bin": strings.Repeat("x", 100)})
				pass(t, u)
				time.Sleep(time.Second)
			}
			if held := heldEarly(t, dir); len(held) != c.want {
				t.Errorf("%+v with %d bytes free: held %v, want %d", c.Hold, c.free, held, c.want)
			}
		})
	}
}
