package trial

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
)

const (
	xfsOwn  = 8 << 20 // what xfs takes for metadata, and reserves for each rename
	xfsLate = 3       // how often freed space may come too late on a busy machine
)

// onVolume gives a trial a file system of its own, and has its use sampled. It is what the trial
// wants, else what STAGER_TRIAL_VOLUME says, else ext4. xfs frees the space of removed files with a
// delay and counts it as used until then, so there the volume has no more room than the window
// needs, and judge finds in stager's log whether it met a full disk.
func onVolume(t *testing.T, cfg *Config) (judge func(log string)) {
	t.Helper()
	kind := cmp.Or(cfg.Volume, os.Getenv("STAGER_TRIAL_VOLUME"), "ext4")
	dir := filepath.Join(cfg.Work, "volume")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, kind, dir, max(2*cfg.Window+64<<20, 400<<20)) // xfs takes no less
	if kind != "xfs" {
		cfg.OwnVolume = true
		return func(string) {}
	}
	fill(t, dir, cfg.Window+xfsOwn)
	return func(log string) {
		if got := strings.Count(log, unix.ENOSPC.Error()); got > xfsLate {
			t.Errorf("the volume had room for %d bytes, and was full %d times, want at most %d:\n%s", cfg.Window, got, xfsLate, log)
		}
	}
}

// mount mounts a new file system of so many bytes, or skips the test if that is not possible.
func mount(t *testing.T, kind, dir string, size int64) {
	t.Helper()
	if kind == "tmpfs" {
		live.Require(t, "mount", unix.Mount(kind, dir, kind, 0, fmt.Sprintf("size=%d", size)))
	} else {
		image := filepath.Join(t.TempDir(), "image")
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, dir}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				name := "mount"
				if kind == "xfs" {
					name = kind
				}
				live.Require(t, name, fmt.Errorf("%v: %w: %s", args, err, out))
			}
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill takes all of a volume but leave bytes.
func fill(t *testing.T, dir string, leave int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "filled"))
	if err != nil {
		t.Fatal(err)
	}
	size := int64(st.Bavail)*st.Bsize - leave
	if err := errors.Join(unix.Fallocate(int(file.Fd()), 0, 0, size), file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}
