package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// disk is where rows that are of a disk get their files.
type disk struct {
	path  string  // a directory
	rate  float64 // of direct writes, in bytes a second; 0: unknown
	what  string  // file system
	close func() error
}

// newDisk makes a directory in Lab.Disk, for the bytes that a suite has there at once. A file
// system that tells its disk of what was removed (discard) has it busy with that for minutes,
// and so with what the run before removed. There the directory is in a file system without that,
// which lies in a file, if one can be made. It has little more room than one run takes, so
// that all write to the same places of the disk: those written first are slower on some.
func newDisk(ctx context.Context, lab *Lab, bytes int64) (disk, error) {
	path, err := os.MkdirTemp(lab.Disk, "stager-bench-")
	if err != nil {
		return disk{}, err
	}
	remove := func() error { return os.RemoveAll(path) }
	if discards(ctx, path) {
		own, err := mountFile(ctx, path, "ext4", bytes+bytes/8+16<<20) // a small file system needs more than an eighth for itself
		if err == nil {
			what := "ext4 without discard, in a file of " + fileSystem(path)
			return disk{path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), own.Fd()), what: what, close: stops{remove, own.Close}.all}, nil
		}
		fmt.Fprintf(lab.Log, "%s is mounted with discard, so that figures of a disk differ more; a file system of its own cannot be made: %v\n", lab.Disk, err)
	}
	return disk{path: path, what: fileSystem(path), close: remove}, nil
}

// measure measures the rate of the disk with up to so many bytes, where its file system takes direct writes.
func (d *disk) measure(ctx context.Context, most int64) error {
	const block = 4 << 20
	blocks := max(min(most/block, 128), 1)
	file := filepath.Join(d.path, "rate")
	began := time.Now()
	err := quietly(exec.CommandContext(ctx, "dd", "if=/dev/zero", "of="+file, fmt.Sprintf("bs=%d", block), fmt.Sprintf("count=%d", blocks), "oflag=direct", "status=none"))
	if err == nil {
		d.rate = float64(block*blocks) / time.Since(began).Seconds()
		d.what += fmt.Sprintf(", which takes %.1f GB/s", d.rate/1e9)
	}
	return os.RemoveAll(file)
}

// goal is that of large files. On a disk that is slower than what arrives, stager writes as much as the page cache has
// room for there; on a faster one, it spares the copies into the page cache.
func (d disk) goal(slow, fast float64) Goal {
	if d.rate < fastDisk {
		return Goal{Ratio: slow}
	}
	return Goal{Ratio: fast, PerGB: 0.35}
}

// fastDisk is what arrives from a server on the same two cores, in bytes a second.
const fastDisk = 1e9

// discards says whether the file system of a directory is mounted with discard.
func discards(ctx context.Context, directory string) bool {
	out, err := exec.CommandContext(ctx, "findmnt", "--noheadings", "--output", "OPTIONS", "--target", directory).Output()
	return err == nil && slices.Contains(strings.Split(strings.TrimSpace(string(out)), ","), "discard")
}

// makers are the commands that make a file system in a file.
var makers = map[string][]string{
	"ext4": {"mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"},
	"xfs":  {"mkfs.xfs", "-q", "-K"},
}

// mountFile makes a file system of a kind, ext4 or xfs, of about so many bytes in a file in dir. All of the file is
// written, so that the disk has a place for it. The file system has no place in the tree of
// directories: its root is what is returned, and with that it ends, also where the process is
// killed.
func mountFile(ctx context.Context, dir, kind string, bytes int64) (root *os.File, err error) {
	const block = 4 << 20
	file, at := filepath.Join(dir, "disk"), filepath.Join(dir, "mount")
	defer os.Remove(file)
	if err := os.Mkdir(at, 0o700); err != nil {
		return nil, err
	}
	defer os.Remove(at)
	for _, command := range [][]string{
		{"dd", "if=/dev/zero", "of=" + file, fmt.Sprintf("bs=%d", block), fmt.Sprintf("count=%d", bytes/block+1), "oflag=direct", "status=none"},
		append(makers[kind], file),
	} {
		if err := quietly(exec.CommandContext(ctx, command[0], command[1:]...)); err != nil {
			return nil, err
		}
	}
	out, err := exec.CommandContext(ctx, "losetup", "--direct-io=on", "--find", "--show", file).Output()
	if err != nil {
		return nil, fmt.Errorf("losetup: %w", err)
	}
	device := strings.TrimSpace(string(out))
	defer func() { // the device goes with its last user
		if derr := quietly(exec.Command("losetup", "--detach", device)); err == nil && derr != nil { //nolint:noctx // also when ctx has ended
			root.Close() //nolint:errcheck // the first error counts
			err = derr
		}
	}()
	if err := unix.Mount(device, at, kind, 0, "nodiscard"); err != nil {
		return nil, fmt.Errorf("mount %s: %w", device, err)
	}
	root, err = os.Open(at)
	if uerr := unix.Unmount(at, unix.MNT_DETACH); err == nil && uerr != nil {
		root.Close() //nolint:errcheck // the first error counts
		err = fmt.Errorf("unmount %s: %w", at, uerr)
	}
	return root, err
}
