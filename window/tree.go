package window

import (
	"errors"
	"io/fs"
	"path"
	"strconv"

	"github.com/stager-dev/stager/window/disk"
)

// An item that is a directory lives like a file, with two differences.
//
// Its second link, in held/ and pending/, is a directory with the item's name. It contains one
// directory, which is named by the inode of the published one. That directory contains a second
// link to each file:
//
//	<dir>/ready/e0000-00000007-NAME/cat/1.jpg
//	<dir>/.stager/held/e0000-00000007-NAME/<inode of the former>/cat/1.jpg
//
// A directory cannot be removed in one step. So it is first moved to leaving/, out of the readers'
// sight, and emptied there. Files that a reader added have no second link and are kept: the
// remainder moves to done/.

// linkTree creates the second link of a tree before the tree is published.
func (s *localDir) linkTree(name string, ino uint64) error {
	if err := s.erase(s.held, name); err != nil { // left by a kill during an earlier attempt
		return err
	}
	held, err := s.held.Mkdir(name, 0o700) // the directories below have the modes of the published ones
	if err != nil {
		return err
	}
	return errors.Join(s.whole.LinkTree(name, held, strconv.FormatUint(ino, 10)), held.Close())
}

// origin returns the inode of the file or tree that a name in held/ or pending/ is a second link to.
// It returns 0 for a tree whose links do not exist.
func (s *localDir) origin(subdir *disk.Subdir, name string) (uint64, error) {
	st, err := subdir.Stat(name)
	if err != nil || !st.Dir {
		return st.Ino, err
	}
	sub, err := subdir.Sub(name)
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

// linked returns the Stat of a second link. For a tree, Links is the maximum number of names of any
// file, and Size is the space of all files.
func (s *localDir) linked(subdir *disk.Subdir, name string) (disk.Stat, error) {
	st, err := subdir.Stat(name)
	if err != nil || !st.Dir {
		return st, err
	}
	tree, err := subdir.TreeStat(name)
	if err != nil {
		return st, err
	}
	st.Links, st.Size, st.Dirs = tree.Links, tree.Room, dirsOf(tree)
	st.Ino, err = s.origin(subdir, name)
	return st, err
}

// dirsOf returns the space of a tree's directories except its own, with their second links.
func dirsOf(tree disk.TreeStat) int64 { return int64(tree.Dirs-1)*disk.DirRoom + tree.Names }

// glimpse is linked without a walk over the files of a tree: for trees that are known to have their
// names.
func (s *localDir) glimpse(subdir *disk.Subdir, name string) (disk.Stat, error) {
	st, err := subdir.Stat(name)
	if err == nil && st.Dir {
		st.Links = 2
		st.Ino, err = s.origin(subdir, name)
	}
	return st, err
}

// verified returns the Stat of a file or tree in whole/.
func (s *localDir) verified(name string) (disk.Stat, error) {
	st, err := s.whole.Stat(name)
	if err == nil && st.Dir {
		var tree disk.TreeStat
		tree, err = s.whole.TreeStat(name)
		st.Size, st.Dirs = tree.Room, dirsOf(tree)
	}
	return st, err
}

// idle reports whether the file, or every file of the tree, is neither open nor mapped.
func (s *localDir) idle(subdir *disk.Subdir, name string) (bool, error) {
	if st, err := subdir.Stat(name); err != nil || st.Dir {
		if err != nil {
			return false, err
		}
		return subdir.IdleTree(name)
	}
	return subdir.Idle(name)
}

// erase removes links that only stager can reach and whose files have other names. A missing name
// is not an error.
func (s *localDir) erase(subdir *disk.Subdir, name string) error {
	return s.Root().RemoveAll(path.Join(subdir.Name(), name))
}

// reuseTree is reuse for a tree: its second link becomes the new tree.
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
	pendingDir, err := s.pendingDir.Mkdir(pendingName(name, ino), 0o700)
	if err != nil {
		return 0, err
	}
	return ino, errors.Join(s.whole.Move(name, pendingDir, strconv.FormatUint(ino, 10)), pendingDir.Close())
}

// hide removes the name if it belongs to this file or tree.
func (s *localDir) hide(subdir *disk.Subdir, name string, ino uint64) error {
	st, err := subdir.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && st.Ino != ino:
		return nil
	case err != nil:
		return err
	case st.Dir:
		return s.hideTree(subdir, name, ino)
	}
	return subdir.RemoveSame(name, ino)
}

// hideTree moves a tree out of sight in one step. It returns fs.ErrNotExist if there is none.
func (s *localDir) hideTree(subdir *disk.Subdir, name string, ino uint64) error {
	away := pendingName(name, ino)
	if err := subdir.Move(name, s.leaving, away); err != nil {
		return err
	}
	return s.leave(away)
}

// leave removes those files of a tree that have a second link, and moves the rest to done/.
func (s *localDir) leave(away string) error {
	gone, err := s.leaving.Prune(away, func(dir *disk.Subdir, name string, st disk.Stat) (bool, error) {
		if st.Links < 2 {
			return false, nil // another program's
		}
		return true, dir.Remove(name)
	})
	if gone || err != nil {
		return err
	}
	err = s.leaving.Move(away, s.done, away)
	if errors.Is(err, fs.ErrExist) {
		return nil // another remainder has that name: this one stays
	}
	return err
}

// resumeRemoval finishes removals that a kill interrupted.
func (s *localDir) resumeRemoval() error {
	names, err := s.leaving.Names()
	for _, name := range names {
		st, serr := s.leaving.Stat(name)
		if serr == nil && st.Dir { // only trees are moved there
			serr = s.leave(name)
		}
		if !errors.Is(serr, fs.ErrNotExist) {
			err = errors.Join(err, serr)
		}
	}
	return err
}
