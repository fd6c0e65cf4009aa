package window

import (
	"errors"
	"io/fs"
	"path"
	"strconv"

	"github.com/stager-dev/stager/window/disk"
)

// An item that is a directory lives as a file does, with two differences.
//
// Its second link, in held/ and doomed/, is a directory of the item's name. In it is one
// directory that has the shown one's inode for a name, and in that a second link to each
// file:
//
//	<dir>/ready/e0000-00000007-NAME/cat/1.jpg
//	<dir>/.stager/held/e0000-00000007-NAME/<inode of the former>/cat/1.jpg
//
// And it does not vanish in one step, so that it is moved out of sight first, to
// leaving/, and emptied there. What a reader put into it has no second link, and
// stays: such a remainder is put into done/.

// linkTree makes the second link of a tree that is about to be shown.
func (s *localDir) linkTree(name string, ino uint64) error {
	if err := s.erase(s.held, name); err != nil { // what a kill left of an earlier try
		return err
	}
	held, err := s.held.Mkdir(name, 0o700) // what is below has the modes of what is shown
	if err != nil {
		return err
	}
	return errors.Join(s.whole.LinkTree(name, held, strconv.FormatUint(ino, 10)), held.Close())
}

// origin is the inode of the file or tree that a name in held/ or doomed/ is a second
// link to; 0 of a tree whose links are not made, or gone.
func (s *localDir) origin(shelf *disk.Subdir, name string) (uint64, error) {
	st, err := shelf.Stat(name)
	if err != nil || !st.Dir {
		return st.Ino, err
	}
	sub, err := shelf.Sub(name)
	if err != nil {
		return 0, err
	}
	defer sub.Close() // opened for reading
	names, err := sub.Names()
	if err != nil || len(names) != 1 {
		return 0, err
	}
	ino, err := strconv.ParseUint(names[0], 10, 64)
	if err != nil {
		return 0, nil // no window made that directory
	}
	return ino, nil
}

// linked is what a second link tells of the file or tree: of a tree, as Links, how many
// names that file has which has most, and as Size the room of all.
func (s *localDir) linked(shelf *disk.Subdir, name string) (disk.Stat, error) {
	st, err := shelf.Stat(name)
	if err != nil || !st.Dir {
		return st, err
	}
	tree, err := shelf.TreeStat(name)
	if err != nil {
		return st, err
	}
	st.Links, st.Size, st.Dirs = tree.Links, tree.Room, dirsOf(tree)
	st.Ino, err = s.origin(shelf, name)
	return st, err
}

// dirsOf is what the directories of a tree take beside its own, with their second links.
func dirsOf(tree disk.TreeStat) int64 { return int64(tree.Dirs-1)*disk.DirRoom + tree.Names }

// glimpse is linked without a look at every file of a tree: for one that is known to have
// its names.
func (s *localDir) glimpse(shelf *disk.Subdir, name string) (disk.Stat, error) {
	st, err := shelf.Stat(name)
	if err == nil && st.Dir {
		st.Links = 2
		st.Ino, err = s.origin(shelf, name)
	}
	return st, err
}

// landed is what is told of a file or tree in whole/.
func (s *localDir) landed(name string) (disk.Stat, error) {
	st, err := s.whole.Stat(name)
	if err == nil && st.Dir {
		var tree disk.TreeStat
		tree, err = s.whole.TreeStat(name)
		st.Size, st.Dirs = tree.Room, dirsOf(tree)
	}
	return st, err
}

// idle tells whether nobody has the file, or any of the tree, open or mapped.
func (s *localDir) idle(shelf *disk.Subdir, name string) (bool, error) {
	if st, err := shelf.Stat(name); err != nil || st.Dir {
		if err != nil {
			return false, err
		}
		return shelf.IdleTree(name)
	}
	return shelf.Idle(name)
}

// erase removes what nobody else can have: links of what stays. It is no error when it
// is not there.
func (s *localDir) erase(shelf *disk.Subdir, name string) error {
	return s.Root().RemoveAll(path.Join(shelf.Name(), name))
}

// reuseTree is pass for a tree: its second link becomes it.
func (s *localDir) reuseTree(name string, ino uint64, to string) error {
	held, err := s.held.Sub(name)
	if err != nil {
		return err
	}
	if err := errors.Join(held.Move(strconv.FormatUint(ino, 10), s.whole, to), held.Close()); err != nil {
		return err
	}
	return s.erase(s.held, name)
}

// discardTree is discard for a tree.
func (s *localDir) discardTree(name string, ino uint64) (uint64, error) {
	tree, err := s.whole.TreeStat(name)
	if err != nil {
		return 0, err
	}
	if tree.Links > 1 {
		return 0, s.erase(s.whole, name)
	}
	if gone, err := s.removeIdle(s.whole, name); gone || err != nil {
		return 0, err
	}
	doomed, err := s.doomed.Mkdir(pendingName(name, ino), 0o700)
	if err != nil {
		return 0, err
	}
	return ino, errors.Join(s.whole.Move(name, doomed, strconv.FormatUint(ino, 10)), doomed.Close())
}

// hide takes the name away if it is that of this file or tree.
func (s *localDir) hide(shelf *disk.Subdir, name string, ino uint64) error {
	st, err := shelf.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && st.Ino != ino:
		return nil
	case err != nil:
		return err
	case st.Dir:
		return s.hideTree(shelf, name, ino)
	}
	return shelf.RemoveSame(name, ino)
}

// hideTree takes a tree out of sight in one step. fs.ErrNotExist when it is not there.
func (s *localDir) hideTree(shelf *disk.Subdir, name string, ino uint64) error {
	away := pendingName(name, ino)
	if err := shelf.Move(name, s.leaving, away); err != nil {
		return err
	}
	return s.leave(away)
}

// leave removes those files of a tree that have their second link.
func (s *localDir) leave(away string) error {
	gone, err := s.leaving.Prune(away, func(dir *disk.Subdir, name string, st disk.Stat) (bool, error) {
		if st.Links < 2 {
			return false, nil // somebody else's
		}
		return true, dir.Remove(name)
	})
	if gone || err != nil {
		return err
	}
	err = s.leaving.Move(away, s.done, away)
	if errors.Is(err, fs.ErrExist) {
		return nil // another remainder lies there: this one stays
	}
	return err
}

// resumeRemoval goes on with what a kill left of that.
func (s *localDir) resumeRemoval() error {
	names, err := s.leaving.Names()
	for _, name := range names {
		if st, serr := s.leaving.Stat(name); serr == nil && st.Dir { // only trees are put there
			err = errors.Join(err, s.leave(name))
		}
	}
	return err
}
