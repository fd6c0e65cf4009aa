package disk

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A tree is a directory that is one item: files, at any depth, that are published and removed
// together. A directory cannot have a second name. So its second link is a tree of second links,
// one per file.

// Block is the allocation unit of file systems, in bytes.
const Block = 4096

// Room returns the bytes that a file of that size takes within a tree, which may have a million
// files: whole blocks, at least one.
func Room(size int64) int64 { return max(1, (size+Block-1)/Block) * Block }

// DirRoom is the number of bytes for a directory of a tree and for the directory of its second
// links.
const DirRoom = 2 * Block

// NameRoom returns the maximum number of bytes that a name takes in a directory: file systems leave
// as much again free between names.
func NameRoom(name string) int64 { return 3 * int64(len(name)+12) }

// Beside returns the bytes that a window needs for a file or tree besides its blocks: its names,
// the records of a fetch, and lines of the journal and the report. For a large file it includes the
// extent metadata, which file systems charge to the file.
func Beside(name string, size int64) int64 {
	return 4*NameRoom(name) + 1024 + size>>16
}

// TreeStat is what a Subdir reports about the files of a tree.
type TreeStat struct {
	Files int
	Room  int64 // of the files
	Links int   // maximum number of names of any file
	Dirs  int   // including the tree's own
	Names int64 // sum of NameRoom of all names, including their second links
}

// TreeStat reads every file of a tree. It returns fs.ErrNotExist if there is none.
func (s *Subdir) TreeStat(name string) (sum TreeStat, err error) {
	err = s.walk(name, func(name string) error {
		sum.Dirs++
		sum.Names += 2 * NameRoom(name)
		return nil
	}, func(dir *Subdir, name string, st Stat) error {
		sum.Names += 2 * NameRoom(name)
		sum.Files++
		sum.Room += Room(st.Size)
		sum.Links = max(sum.Links, st.Links)
		return nil
	}, nil)
	return sum, err
}

// LinkTree creates a directory in another directory, with a second name for each file of the tree.
// The new directory must not exist.
func (s *Subdir) LinkTree(name string, to *Subdir, as string) error {
	into := []*Subdir{to}
	defer func() {
		for _, subdir := range into[1:] {
			subdir.Close() //nolint:errcheck // it was read and linked into, not written
		}
	}()
	return s.walk(name, func(name string) error {
		if len(into) == 1 {
			name = as
		}
		sub, err := into[len(into)-1].Mkdir(name, treeMode)
		if err == nil {
			into = append(into, sub)
		}
		return err
	}, func(dir *Subdir, name string, _ Stat) error {
		return dir.Link(name, into[len(into)-1], name)
	}, func(*Subdir, string) error {
		last := len(into) - 1
		err := into[last].Close()
		into = into[:last]
		return err
	})
}

// IdleTree reports whether no file of the tree is open or mapped.
func (s *Subdir) IdleTree(name string) (bool, error) {
	idle := true
	err := s.walk(name, nil, func(dir *Subdir, name string, _ Stat) (err error) {
		if idle {
			idle, err = dir.Idle(name)
		}
		return err
	}, nil)
	return idle, err
}

// Prune calls remove for each file of a tree, and removes the directories that are then empty. gone
// reports whether nothing is left.
func (s *Subdir) Prune(name string, remove func(dir *Subdir, name string, st Stat) (bool, error)) (gone bool, err error) {
	gone = true
	err = s.walk(name, nil, func(dir *Subdir, name string, st Stat) error {
		was, err := remove(dir, name, st)
		gone = gone && (was || errors.Is(err, fs.ErrNotExist))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}, func(parent *Subdir, name string) error {
		err := retryErr(func() error { return unix.Unlinkat(parent.fd(), name, unix.AT_REMOVEDIR) })
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			gone, err = false, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return parent.fail("remove", name, err)
	})
	return gone && err == nil, err
}

// Mkdir creates a new directory with that mode, regardless of the umask, and opens it.
func (s *Subdir) Mkdir(name string, mode fs.FileMode) (*Subdir, error) {
	err := single(name)
	if err == nil {
		err = retryErr(func() error { return unix.Mkdirat(s.fd(), name, uint32(mode.Perm())) })
	}
	if err != nil {
		return nil, s.fail("create", name, err)
	}
	sub, err := s.Sub(name)
	if err == nil {
		err = retryErr(func() error { return unix.Fchmod(sub.fd(), uint32(mode.Perm())) })
	}
	if err != nil {
		return nil, s.fail("create", name, err)
	}
	return sub, nil
}

// walk walks a tree. It calls enter before the content of a directory, file for each object that is
// not a directory, and leave after a directory has been closed. enter and leave may be nil.
func (s *Subdir) walk(name string, enter func(name string) error, file func(dir *Subdir, name string, st Stat) error, leave func(parent *Subdir, name string) error) error {
	if enter != nil {
		if err := enter(name); err != nil {
			return err
		}
	}
	dir, err := s.Sub(name)
	if err != nil {
		return err
	}
	err = dir.each(enter, file, leave)
	if err = errors.Join(err, dir.Close()); err != nil || leave == nil {
		return err
	}
	return leave(s, name)
}

func (s *Subdir) each(enter func(name string) error, file func(dir *Subdir, name string, st Stat) error, leave func(parent *Subdir, name string) error) error {
	names, err := s.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := s.Stat(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // another process removes the tree, too
		case err == nil && st.Dir:
			err = s.walk(name, enter, file, leave)
		case err == nil:
			err = file(s, name, st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
