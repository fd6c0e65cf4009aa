package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"
)

// IncomingTree is a tree on its way in. Its files come one by one, each an [Incoming]
// that is published into the tree when it is verified; the tree is published by one
// rename when all are there. Has, File and Keep may be called from many goroutines at
// once; Publish or Discard comes after all of them.
type IncomingTree struct {
	dir  *Dir
	name string // below incomingDir

	began atomic.Pointer[time.Time]

	mu          sync.Mutex // guards all below
	directories map[string]bool
}

// treeMode lets readers of other users move and remove a tree, as they may a file.
const treeMode = 0o777

const treeSuffix = ".tree"

// IncomingTree opens the tree that will be published under an identity of the caller's
// choice. What an earlier process verified of it counts when version is the same, and
// the machine has not been booted since. A version must tell of every file.
func (f *Dir) IncomingTree(id, version string) (*IncomingTree, error) {
	in := &IncomingTree{dir: f, name: incomingName(id) + treeSuffix, directories: map[string]bool{}}
	note, header := in.name+".of", fmt.Sprintf("%q %s\n", version, bootID())
	old, err := ReadSmall(f.incoming, note, Limit)
	if _, gone := f.incoming.Lstat(in.name); err != nil || gone != nil || string(old) != header {
		if err := errors.Join(in.Discard(), f.incoming.Mkdir(in.name, 0o755), ReplaceSmall(f.incoming, note, []byte(header), 0o644, false)); err != nil {
			return nil, err
		}
	}
	return in, f.incoming.Chmod(in.name, treeMode)
}

// Began tells when the first file arrived since Dir.IncomingTree gave the tree.
func (in *IncomingTree) Began() (at time.Time, began bool) {
	if first := in.began.Load(); first != nil {
		return *first, true
	}
	return at, false
}

// Has tells whether a file of the tree is there, verified.
func (in *IncomingTree) Has(name string, size int64) bool {
	info, err := in.dir.incoming.Lstat(path.Join(in.name, name))
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// File opens one file of the tree.
func (in *IncomingTree) File(name string, size int64, version string) (*Incoming, error) {
	return in.dir.Incoming(in.name+"/"+name, size, version)
}

// Keep puts a file that is whole and verified into the tree.
func (in *IncomingTree) Keep(name string, file *Incoming) error {
	if err := in.mkdir(path.Dir(path.Join(in.name, name))); err != nil {
		return err
	}
	if in.began.Load() == nil {
		now := time.Now()
		in.began.CompareAndSwap(nil, &now)
	}
	return file.Publish(path.Join(incomingDir, in.name, name), 0o444, time.Time{})
}

// mkdir makes the directories on the way to a file.
func (in *IncomingTree) mkdir(dir string) error {
	if dir == in.name {
		return nil
	}
	in.mu.Lock()
	made := in.directories[dir]
	in.mu.Unlock()
	if made {
		return nil
	}
	if err := in.mkdir(path.Dir(dir)); err != nil {
		return err
	}
	if err := in.dir.incoming.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := in.dir.incoming.Chmod(dir, treeMode); err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.directories[dir] = true
	return nil
}

// Stat is what has come.
func (in *IncomingTree) Stat() (TreeStat, error) {
	shelf, err := in.dir.Subdir(incomingDir, 0o755)
	if err != nil {
		return TreeStat{}, err
	}
	st, err := shelf.TreeStat(in.name)
	return st, errors.Join(err, shelf.Close())
}

// Publish gives the tree its name within the directory; when something has that name the
// error is fs.ErrExist.
func (in *IncomingTree) Publish(name string) error {
	f := in.dir
	to, base, err := f.directoryOf(name)
	if err != nil {
		return err
	}
	if to != f.dir {
		defer to.Close() // opened for its name
	}
	if err := renameNew(f.incomingDir, in.name, to, base); err != nil {
		return &os.LinkError{Op: "rename", Old: path.Join(incomingDir, in.name), New: name, Err: err}
	}
	// From here on the tree exists: a note without one is swept later.
	_ = in.dir.incoming.Remove(in.name + ".of")
	return nil
}

// Discard drops what has come.
func (in *IncomingTree) Discard() error {
	return errors.Join(in.dir.incoming.RemoveAll(in.name), in.dir.incoming.RemoveAll(in.name+".of"))
}
