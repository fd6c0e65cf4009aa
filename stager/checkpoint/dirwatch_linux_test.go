package checkpoint

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/mem"
)

// movedNames waits until the watch has seen n renames.
func movedNames(t *testing.T, u *Uploader, hints <-chan struct{}, n int) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		u.renames.mu.Lock()
		got := len(u.renames.to)
		u.renames.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-hints:
		case <-limit:
			t.Fatalf("%d renames were seen, want %d", got, n)
		}
	}
}

// Notifications of the kernel reveal renames into place, even of temporary names that no scan
// saw. Regression: of 20 directories, one was committed at once and the others after the quiet
// period.
func TestRenamesAreSeenWithoutScans(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, nil)
	hints, stop := u.watch()
	defer stop()
	for i := range 20 {
		temporary := filepath.Join(dir, fmt.Sprintf("writing%d.tmp", i))
		write(t, temporary, map[string]string{"weights": "w"})
		if err := os.Rename(temporary, filepath.Join(dir, fmt.Sprintf("step-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	movedNames(t, u, hints, 20)
	pass(t, u)
	if got := len(commits(b)); got != 20 {
		t.Errorf("%d of 20 are committed, want all; waiting %v", got, u.Status().Waiting)
	}
	if c := commitOf(t, b, 7); c.Evidence != "rename" || c.Provisional {
		t.Errorf("evidence %q, provisional %v, want a final one by its rename", c.Evidence, c.Provisional)
	}
}

// A checkpoint that gets another number was not renamed into place. Neither was one that has been
// replaced since.
func TestRenamesThatProveNothing(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, nil)
	hints, stop := u.watch()
	defer stop()
	for from, to := range map[string]string{"step-1": "step-2", "x.tmp": "step-3", "y.tmp": "other-4"} {
		write(t, filepath.Join(dir, from), map[string]string{"weights": "w"})
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	movedNames(t, u, hints, 2)
	u.renames.mu.Lock()
	_, moved := u.renames.to["step-2"]
	u.renames.to["step-3"]++ // another directory has this name now
	u.renames.mu.Unlock()
	if moved {
		t.Error("step-2 passes for renamed into place, and was step-1")
	}
	pass(t, u)
	if got := strings.Join(commits(b), " "); got != "step-00000004" {
		t.Errorf("committed %s, want step 4 alone", got)
	}
}

// If the kernel drops notifications, that is logged and the directory is scanned.
func TestOverflowOfNotificationsIsLogged(t *testing.T) {
	var said bytes.Buffer
	dir := t.TempDir()
	u := newUploader(t, dir, mem.New(), func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
	hint := make(chan struct{}, 1)
	w, err := newDirWatch(u, hint)
	if err != nil {
		t.Fatal(err)
	}
	defer w.file.Close()
	write(t, filepath.Join(dir, "step-1"), map[string]string{"weights": "w"})
	w.event(-1, unix.IN_Q_OVERFLOW, 0, "")
	select {
	case <-hint:
	default:
		t.Error("no scan follows")
	}
	if got := said.String(); !strings.Contains(got, "dropped notifications") || len(w.names) != 1 {
		t.Errorf("log %q, %d directories are watched, want a warning and the new directory", got, len(w.names))
	}
}
