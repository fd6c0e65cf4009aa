package disk

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// Filling is an incoming tree whose files are written in place, one after the other, as they are
// extracted from an archive. It cannot be resumed: after a kill, the tree starts again from
// scratch. It is not safe for concurrent use.
type Filling struct {
	in       *IncomingTree
	root     *os.Root
	mode     fs.FileMode // of directories; users who may read these may read the files
	modified time.Time   // of the files and the tree; zero: the time of writing
	dir      string
	at       *os.Root // dir, opened for short path lookups; nil: not opened

	// Made is called for each new directory, including the parents of files. Its error ends the
	// filling. May be nil.
	Made func(name string) error
}

// Fill discards the received files of the tree and starts to fill it. The directories get mode, and
// the files get the time modified.
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

// Mkdir creates a directory and its parents. It returns fs.ErrExist if the name is a file, and
// fs.ErrInvalid if a parent is a file.
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

// way returns fs.ErrInvalid for an error of a parent that is not a directory.
func (f *Filling) way(err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTDIR) {
		return fs.ErrInvalid
	}
	return err
}

// Create creates a file for size bytes, and its parent directories. The caller writes and closes
// it. The space of a large file is preallocated. If the name is taken, the errors are those of
// Mkdir.
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
		_ = f.at.Close() // files have their own descriptors
		f.at = nil
	}
}

// FillingFile is a file that is being written.
type FillingFile struct {
	*os.File
	of   *Filling
	perm fs.FileMode
}

// Close sets the file's mode and time, and closes it.
func (f *FillingFile) Close() error {
	err := f.Chmod(f.perm)
	if at := f.of.modified; err == nil && !at.IsZero() {
		err = f.of.at.Chtimes(path.Base(f.Name()), at, at)
	}
	return errors.Join(err, f.File.Close())
}

// Close ends the filling. The tree is then complete, or the caller discards it.
func (f *Filling) Close() error {
	f.leave()
	return f.root.Close()
}

// PublishOver renames the tree to a name within the directory, creates the parents, and removes a
// tree that had the name. mine receives the path of the old tree within the directory, where no other
// program writes, and reports whether it may be removed. If not, the old tree gets its name back,
// and the error is fs.ErrExist. note is called with the state of the new tree while neither tree
// has the name, for a moment. On an error the old tree gets its name back.
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
	if err != nil && replaced { // for example on a full disk: the old tree must survive
		return errors.Join(err, renameNew(f.incomingDir, old, to, base))
	} else if err != nil {
		return err
	}
	// The new tree is published: the remains of the old one are swept later.
	_ = f.incoming.RemoveAll(old) // as above
	return nil
}
