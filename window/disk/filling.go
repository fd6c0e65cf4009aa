package disk

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// Filling is a tree on its way in whose files are written in place, one after the other,
// as they come out of an archive. A kill loses it: whoever opens the tree again begins
// anew. It is used by one goroutine.
type Filling struct {
	in       *IncomingTree
	root     *os.Root
	mode     fs.FileMode // of directories; files may be read by whom these may
	modified time.Time   // of files and of the tree; zero: when they were written
	dir      string
	at       *os.Root // dir, so that each of its files is a short way; nil: not opened

	// Made is called for each directory that is made, also those on the way to a file. Its
	// error ends the filling. nil: nobody counts them.
	Made func(name string) error
}

// Fill drops what has come of the tree and begins to fill it. Its directories get the mode,
// and its files the time.
func (in *IncomingTree) Fill(mode fs.FileMode, modified time.Time) (*Filling, error) {
	dir := in.dir.incoming
	err := errors.Join(dir.RemoveAll(in.name), dir.Mkdir(in.name, 0o755), dir.Chmod(in.name, mode))
	if err != nil {
		return nil, err
	}
	root, err := dir.OpenRoot(in.name)
	if err != nil {
		return nil, err
	}
	return &Filling{in: in, root: root, mode: mode, modified: modified}, nil
}

// Mkdir makes a directory, and those on the way to it. fs.ErrExist says that there is a file
// of that name, fs.ErrInvalid that there is one on the way.
func (f *Filling) Mkdir(name string) error {
	err := f.root.Mkdir(name, 0o755)
	if dir := path.Dir(name); errors.Is(err, fs.ErrNotExist) && dir != "." {
		if err := f.way(f.Mkdir(dir)); err != nil {
			return err
		}
		err = f.root.Mkdir(name, 0o755)
	}
	if err == nil {
		err = f.root.Chmod(name, f.mode)
		if err == nil && f.Made != nil {
			err = f.Made(name)
		}
		return err
	}
	if !errors.Is(err, fs.ErrExist) {
		return f.way(err)
	}
	if info, serr := f.root.Lstat(name); serr == nil && info.IsDir() {
		return nil
	}
	return fs.ErrExist
}

// way says of an error on the way to a name what stands there.
func (f *Filling) way(err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTDIR) {
		return fs.ErrInvalid
	}
	return err
}

// Create makes a file for so many bytes, and the directories on the way to it; the caller
// writes and closes it. The space of a large one is reserved. The errors of a name that
// is taken are those of Mkdir.
func (f *Filling) Create(name string, size int64, executable bool) (*FillingFile, error) {
	if err := f.enter(path.Dir(name)); err != nil {
		return nil, err
	}
	perm := fs.FileMode(0o644)
	if f.mode == treeMode {
		perm = 0o444
	}
	if executable {
		perm |= 0o111
	}
	if f.in.began.Load() == nil {
		now := time.Now()
		f.in.began.CompareAndSwap(nil, &now)
	}
	file, err := f.at.OpenFile(path.Base(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if errors.Is(err, fs.ErrExist) {
		return nil, fs.ErrExist
	}
	if err != nil {
		return nil, err
	}
	if err := f.in.dir.writing.reserve(name, file, size); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &FillingFile{file, f, perm}, nil
}

// enter opens a directory of the tree.
func (f *Filling) enter(dir string) error {
	if f.at != nil && f.dir == dir {
		return nil
	}
	at, err := f.root.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.Mkdir(dir); err == nil {
			at, err = f.root.OpenRoot(dir)
		}
	}
	if err != nil {
		return f.way(err)
	}
	f.leave()
	f.dir, f.at = dir, at
	return nil
}

func (f *Filling) leave() {
	if f.at != nil {
		_ = f.at.Close() // files are written through descriptors of their own
		f.at = nil
	}
}

// FillingFile is a file that is being written.
type FillingFile struct {
	*os.File
	of   *Filling
	perm fs.FileMode
}

// Close gives the file its mode and its time.
func (f *FillingFile) Close() error {
	err := f.Chmod(f.perm)
	if at := f.of.modified; err == nil && !at.IsZero() {
		err = f.of.at.Chtimes(path.Base(f.Name()), at, at)
	}
	return errors.Join(err, f.File.Close())
}

// Close ends the filling; the tree is whole then, or is discarded.
func (f *Filling) Close() error {
	f.leave()
	return f.root.Close()
}

// PublishOver gives the tree its name within the directory, makes the directories on the way,
// and removes a tree that had the name. mine looks at that one, as it lies at a path within
// the directory where nobody else writes, and says whether it may go: if it may not, it gets
// its name back, and the error is fs.ErrExist. note is called before the new one gets the
// name, when the other has lost it, with the state that the tree has; nothing is there then
// for a moment. The other gets its name back on an error.
func (in *IncomingTree) PublishOver(name string, modified time.Time, mine func(at string) (bool, error), note func(State) error) error {
	f := in.dir
	old := in.name + ".old"
	if err := f.incoming.RemoveAll(old); err != nil {
		return err
	}
	if err := f.incoming.Chtimes(in.name, modified, modified); err != nil {
		return err
	}
	state, _, err := f.statAt(f.incomingDir, in.name)
	if err != nil {
		return err
	}
	to, base, err := f.directoryOf(name)
	if err != nil {
		return err
	}
	if to != f.dir {
		defer to.Close() // opened for its name
	}
	err = renameNew(to, base, f.incomingDir, old)
	replaced := err == nil
	if replaced {
		ours, merr := mine(path.Join(incomingDir, old))
		if merr != nil || !ours {
			return errors.Join(merr, renameNew(f.incomingDir, old, to, base), fs.ErrExist)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = note(state); err == nil {
		err = in.Publish(name)
	}
	if err != nil && replaced { // as on a full disk, which must not cost both
		return errors.Join(err, renameNew(f.incomingDir, old, to, base))
	} else if err != nil {
		return err
	}
	// The new one is there: what is left of the old one is swept later.
	_ = f.incoming.RemoveAll(old) // as above
	return nil
}
