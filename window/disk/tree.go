package disk

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A tree is a directory that is one item: files, at any depth, that come and go together.
// A directory cannot have a second name as a file can, so its second link is a tree of
// second links, one for each file.

// Block is what file systems give space in.
const Block = 4096

// Room is what a file of that size takes within a tree, where there may be a million:
// whole blocks, and one at least.
func Room(size int64) int64 { return max(1, (size+Block-1)/Block) * Block }

// DirRoom is what a directory of a tree takes, and the one that has the second links of
// its files.
const DirRoom = 2 * Block

// NameRoom is what a name takes in a directory at most: file systems leave as much free
// again between names.
func NameRoom(name string) int64 { return 3 * int64(len(name)+12) }

// Beside is what a window needs for a file or tree besides its bytes in whole blocks: its
// names, notes of a fetch, and lines of the journal and the report. Of a large file it is
// also where its blocks are, which file systems count to it.
func Beside(name string, size int64) int64 {
	return 4*NameRoom(name) + 1024 + size>>16
}

// TreeStat is what a Subdir tells about the files of a tree.
type TreeStat struct {
	Files int
	Room  int64 // of the files
	Links int   // how many names that file has which has most
	Dirs  int   // with the tree's own
	Names int64 // NameRoom of all, with their second links
}

// TreeStat looks at every file of a tree. fs.ErrNotExist when it is not there.
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

// LinkTree makes a directory on another shelf, which must not be there, with a second name
// for each file of the tree.
func (s *Subdir) LinkTree(name string, to *Subdir, as string) error {
	into := []*Subdir{to}
	defer func() {
		for _, shelf := range into[1:] {
			shelf.Close() //nolint:errcheck // it was read and linked into, not written
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

// IdleTree tells whether nobody has any file of the tree open or mapped.
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

// Prune removes of a tree the files that remove removes, and the directories that have
// nothing left. It says whether nothing is left at all.
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

// Mkdir makes a directory that was not there, of that mode whatever the umask, and opens
// it.
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

// walk goes through a tree: enter is called before what is in a directory, file for all
// that is none, leave behind a directory, which is closed then. enter and leave may be nil.
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
			continue // somebody removes the tree, too
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
