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

// IncomingTree is a tree that is being fetched. Each of its files is an [Incoming] that is moved
// into the tree once it is verified. One rename publishes the complete tree. Has, File and Keep are
// safe for concurrent use. Publish or Discard must follow all of their calls.
type IncomingTree struct {
	dir  *Dir
	name string // below incomingDir

	began atomic.Pointer[time.Time]

	mu          sync.Mutex // guards all fields below
	directories map[string]bool
}

// treeMode lets readers of other users move and remove a tree, as they can a file.
const treeMode = 0o777

const treeSuffix = ".tree"

// IncomingTree opens a tree to be published. id identifies it. Files that an earlier process
// verified are kept if version is the same and the machine has not been rebooted. The version must
// change if any file changes.
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

// Began returns when the first file was added since Dir.IncomingTree returned.
func (in *IncomingTree) Began() (at time.Time, began bool) {
	if first := in.began.Load(); first != nil {
		return *first, true
	}
	return at, false
}

// Has reports whether a file of the tree is present and verified.
func (in *IncomingTree) Has(name string, size int64) bool {
	info, err := in.dir.incoming.Lstat(path.Join(in.name, name))
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// File opens one file of the tree.
func (in *IncomingTree) File(name string, size int64, version string) (*Incoming, error) {
	return in.dir.Incoming(in.name+"/"+name, size, version)
}

// Keep moves a complete and verified file into the tree.
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

// mkdir creates the parent directories of a file.
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

// Stat returns the TreeStat of the files that are present.
func (in *IncomingTree) Stat() (TreeStat, error) {
	subdir, err := in.dir.Subdir(incomingDir, 0o755)
	if err != nil {
		return TreeStat{}, err
	}
	st, err := subdir.TreeStat(in.name)
	return st, errors.Join(err, subdir.Close())
}

// Publish renames the tree to a name within the directory. It returns fs.ErrExist if the name is
// taken.
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
	// The tree is published: a note that remains is swept later.
	_ = in.dir.incoming.Remove(in.name + ".of")
	return nil
}

// Discard removes the tree.
func (in *IncomingTree) Discard() error {
	return errors.Join(in.dir.incoming.RemoveAll(in.name), in.dir.incoming.RemoveAll(in.name+".of"))
}
