package live

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a new file system of size bytes on a directory until the test ends: ext4, xfs, which
// takes no less than 300 MB, or tmpfs. If that is not possible, it ends the test like [Require].
func Mount(t testing.TB, kind, dir string, size int64) {
	t.Helper()
	if kind == "tmpfs" {
		Require(t, "mount", unix.Mount(kind, dir, kind, 0, fmt.Sprintf("size=%d", size)))
	} else {
		image := filepath.Join(t.TempDir(), "image")
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, dir}} {
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
				name := "mount"
				if kind == "xfs" {
					name = kind // the mkfs programs of this one are installed for tests
				}
				Require(t, name, fmt.Errorf("%v: %w: %s", args, err, out))
			}
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
}

// Throttle limits the writes to the device of a volume to some bytes per second, until the test ends or
// the function that it returns is called. Only version 1 of control groups can do so for all processes; if
// that is not possible, it ends the test like [Require].
func Throttle(t testing.TB, dir string, perSecond int64) (lift func()) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	set := func(perSecond int64) error {
		rule := fmt.Sprintf("%d:%d %d", unix.Major(st.Dev), unix.Minor(st.Dev), perSecond)
		return os.WriteFile("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device", []byte(rule), 0)
	}
	Require(t, "blkio", set(perSecond))
	lift = sync.OnceFunc(func() {
		if err := set(0); err != nil {
			t.Errorf("lifting the limit of %s: %v", dir, err)
		}
	})
	t.Cleanup(lift)
	return lift
}

// Fill takes all of a volume but leave bytes.
//
// xfs frees the space of removed files with a delay, and statvfs counts it as used until then. On a
// full disk it is freed when it is needed. So a test that cannot measure the use of xfs gives it no
// more space than what is tested may take, and looks whether that goes on.
func Fill(t testing.TB, dir string, leave int64) {
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
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes are free, want %d", int64(st.Bavail)*st.Bsize, leave)
}
