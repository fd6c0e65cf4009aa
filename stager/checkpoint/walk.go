package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// local is a file of the output directory and its state during a listing.
type local struct {
	Path  string `json:"path"` // below the directory that was listed
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds
	Inode uint64 `json:"inode"`
	Mode  uint32 `json:"mode"`
}

// describe returns the state of a regular file. It excludes the change time, which changes when
// links are created and removed.
func describe(p string, info fs.FileInfo) local {
	f := local{Path: p, Size: info.Size(), MTime: info.ModTime().UnixNano(), Mode: uint32(info.Mode().Perm())}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Inode = st.Ino
	}
	return f
}

func (f local) modified() time.Time { return time.Unix(0, f.MTime).UTC() }

// fingerprint returns a digest of the state of all files.
func fingerprint(files []local) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d %d %d\n", f.Path, f.Size, f.MTime, f.Inode)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func totalSize(files []local) (n int64) {
	for _, f := range files {
		n += f.Size
	}
	return n
}

// tree is a checkpoint in the output directory: a directory, a single file, or a group of files
// that form one checkpoint.
type tree struct {
	root    *os.Root // the directory to which the files' paths are relative
	only    string   // the file, or the name of the group; empty for all of root
	grouped bool
}

// openTree opens the checkpoint called name below root.
func openTree(root *os.Root, name string) (tree, error) {
	info, err := root.Lstat(name)
	grouped := errors.Is(err, fs.ErrNotExist) && len(groupMembers(root, name)) > 0
	switch {
	case grouped:
		sub, err := root.OpenRoot(path.Dir(name))
		return tree{sub, path.Base(name), true}, err
	case err != nil:
		return tree{}, err
	case info.IsDir():
		sub, err := root.OpenRoot(name)
		return tree{root: sub}, err
	case info.Mode().IsRegular():
		sub, err := root.OpenRoot(path.Dir(name))
		return tree{root: sub, only: path.Base(name)}, err
	}
	return tree{}, fmt.Errorf("%s is neither a directory nor a regular file (%s)", name, info.Mode().Type())
}

// groupMembers lists the files that together are the checkpoint called name, without their
// directory.
func groupMembers(root *os.Root, name string) (members []string) {
	entries, err := fs.ReadDir(disk.FS(root), path.Dir(name))
	if err != nil {
		return nil // the directory is gone, which openTree reports
	}
	for _, e := range entries {
		if of, ok := groupOf(e.Name()); ok && of == path.Base(name) && e.Type().IsRegular() {
			members = append(members, e.Name())
		}
	}
	return members
}

// present reports whether a file, a directory or a group with this name exists.
func present(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist) || len(groupMembers(root, name)) > 0
}

func (t tree) close() { _ = t.root.Close() } // opened for reading

// files lists the checkpoint's files, sorted by path, and returns its marker. It fails when an
// entry could not be restored. It returns errChanged when an entry of a directory appeared or
// disappeared during the listing, because the listing of a tree that is being removed is
// incomplete.
func (t tree) files() (files []local, marker fs.FileInfo, err error) {
	if t.only != "" {
		members := []string{t.only}
		if t.grouped {
			members = groupMembers(t.root, t.only)
		}
		for _, p := range members {
			info, err := t.root.Lstat(p)
			if err != nil {
				return nil, nil, err
			}
			if err := checkPath(p); err != nil {
				return nil, nil, err
			}
			files = append(files, describe(p, info))
		}
		return files, nil, nil
	}
	dirs := make(map[string]fs.FileInfo)
	err = fs.WalkDir(disk.ListedFS(t.root), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == markerName && d.Type().IsRegular():
			marker, err = d.Info()
			return err
		case p != "." && ours(p):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			dirs[p], err = t.root.Lstat(p)
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return changed(p)
		}
		if err != nil {
			return err
		}
		if info.Mode().Type() == fs.ModeSymlink {
			// Use the Root, so that a link that leads out is an error.
			info, err = t.root.Stat(p)
			if err != nil {
				return fmt.Errorf("the symbolic link %s cannot be followed within the checkpoint: %w", p, err)
			}
			if info.IsDir() {
				return fmt.Errorf("%s is a symbolic link to a directory; such links are not saved", p)
			}
		}
		if !info.Mode().IsRegular() {
			return nil // a socket or a device has no content to save
		}
		if err := checkPath(p); err != nil {
			return err
		}
		files = append(files, describe(p, info))
		return nil
	})
	if err == nil {
		err = t.stood(dirs)
	}
	slices.SortFunc(files, func(a, b local) int { return strings.Compare(a.Path, b.Path) })
	return files, marker, explainWalk(t.root, err)
}

// stood returns errChanged when an entry of a directory appeared or disappeared since dirs was
// recorded.
func (t tree) stood(dirs map[string]fs.FileInfo) error {
	for p, before := range dirs {
		now, err := t.root.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!os.SameFile(now, before) || !now.ModTime().Equal(before.ModTime())) {
			return changed(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// changeTime returns when a file was last written, renamed or linked.
func changeTime(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return sys.Changed(st)
	}
	return info.ModTime()
}

// atOnce is the maximum difference of the times within one step of a trainer.
const atOnce = 2 * time.Second

// changedAfter reports whether an entry of one of the tree's directories appeared or disappeared
// later than at. A trainer that removes a checkpoint may remove its marker last.
func (t tree) changedAfter(at time.Time) bool {
	later := errors.New("later")
	err := fs.WalkDir(disk.FS(t.root), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(at.Add(atOnce)) {
			err = later
		}
		return err
	})
	return errors.Is(err, later) // files has reported other errors
}

// openFile opens one of the tree's files for reading.
func (t tree) openFile(p string) (*os.File, error) {
	file, err := t.root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	return file, explain(t.root, p, err)
}

// errCannotTell: the kernel does not report writers of a file, because another user owns the file
// or its file system has no file leases.
var errCannotTell = errors.New("the kernel does not report who has this file open")

// beingWritten reports whether any process has the file open, or mapped, for writing. The kernel
// grants a read lease on a file only if there is none. The lease is released at once.
func beingWritten(f *os.File) (bool, error) {
	err := sys.Lease(f, unix.F_RDLCK)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return true, nil
	case err != nil:
		return false, errCannotTell
	}
	if err = sys.Lease(f, unix.F_UNLCK); err != nil {
		err = &fs.PathError{Op: "release the lease of", Path: f.Name(), Err: err}
	}
	return false, err
}

// writers returns the path of a file that is open for writing, or "". blind reports that the
// kernel does not report writers for some of the files.
func (t tree) writers(files []local) (name string, blind bool, err error) {
	for _, want := range files {
		f, err := t.openFile(want.Path)
		if err != nil {
			return "", blind, err
		}
		busy, err := beingWritten(f)
		_ = f.Close() // opened for reading
		switch {
		case errors.Is(err, errCannotTell):
			blind = true
		case err != nil:
			return "", blind, err
		case busy:
			return want.Path, blind, nil
		}
	}
	return "", blind, nil
}

// inode returns the inode number of a file, or 0 where the system has none.
func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
