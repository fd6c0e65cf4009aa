package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// instead replaces a hard link that was refused, as for files of other users
// (fs.protected_hardlinks). It recreates a symbolic link and copies a file. Copies of this file
// and the remaining ones may need at most half of the free space, because the trainer needs
// space, too. Copies that share blocks are not limited. If there is no room, instead returns the
// refusal.
func (s *snapshotDir) instead(old, name string, f local, all int64, refusal error) (copied bool, err error) {
	if target, err := s.root.Readlink(old); err == nil {
		return false, s.root.Symlink(target, name)
	}
	copied, err = s.copyFile(old, name, f, 2*all)
	if errors.As(err, new(*copyError)) {
		return false, errors.Join(refusal, s.root.Remove(name))
	}
	return copied, err
}

// copyError reports that a file could not be copied.
type copyError struct{ error }

func (e *copyError) Unwrap() error { return e.error }

// copyFile copies a file with its modification time. It shares the blocks where possible;
// otherwise, need bytes must be free. done is false for a symbolic link. Its errors are:
//   - errChanged if the file differs from its listing or is open for writing
//   - an *unreadableError if stager may not read the file
//   - a *copyError if it cannot be copied; of kind NoSpace if there is no room, which is checked
//     before the first byte
func (s *snapshotDir) copyFile(old, name string, f local, need int64) (done bool, err error) {
	from, err := disk.OpenFile(s.root, old, os.O_RDONLY, 0)
	err = explain(s.root, old, err)
	if odd := (*disk.NotRegularError)(nil); errors.As(err, &odd) {
		return false, nil // a link leads to the copy of its file
	}
	if err != nil {
		return false, err
	}
	defer from.Close() // opened for reading
	to, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	if err = s.clone(to, from); err != nil {
		err = s.copyBytes(to, from, f, need)
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return false, refuseCopy(old, err)
	}
	if err := unchanged(from, f); err != nil {
		return false, err
	}
	return true, s.root.Chtimes(name, f.modified(), f.modified())
}

func (s *snapshotDir) copyBytes(to, from *os.File, f local, need int64) error {
	free, err := s.free(s.root)
	if err != nil {
		return err
	}
	if need > free {
		return &backends.Error{Kind: backends.NoSpace, Err: fmt.Errorf("copies need %s (%d bytes) free, and %s (%d bytes) are free",
			humanize.IBytes(uint64(need)), need, humanize.IBytes(uint64(free)), free)}
	}
	_, err = io.Copy(to, io.LimitReader(from, f.Size+1))
	return err
}

// refuseCopy returns an error that names the file and suggests a remedy.
func refuseCopy(name string, err error) error {
	kind := backends.KindOf(err)
	if isFull(err) {
		kind = backends.NoSpace
	}
	return &copyError{backends.Errorf(kind, "hold", name,
		"it may be overwritten in place, so a copy is needed, which is not possible: %w; free some space in the output's volume, or give each checkpoint a name of its own", err)}
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// freeSpace returns the free bytes of the file system of root.
func freeSpace(root *os.Root) (int64, error) {
	dir, err := disk.OpenDir(root)
	if err != nil {
		return 0, err
	}
	defer dir.Close() // only its descriptor was needed
	on, err := sys.FileSystemOf(int(dir.Fd()))
	if err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: root.Name(), Err: err}
	}
	return on.Free, nil
}
