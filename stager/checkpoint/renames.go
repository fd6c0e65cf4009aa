package checkpoint

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"sync"
)

// renames holds what was renamed to names of the output directory and has not been looked at since.
type renames struct {
	root *os.Root

	mu sync.Mutex        // guards to; a leaf
	to map[string]uint64 // inodes, by name
}

// into records that something was renamed to a name.
func (r *renames) into(name string) {
	info, err := r.root.Lstat(name)
	if err != nil {
		return // it was removed again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to[name] = inode(info)
}

// take reports whether a checkpoint was renamed into place. It reports each rename once.
func (r *renames) take(name string) bool {
	r.mu.Lock()
	want, ok := r.to[name]
	delete(r.to, name)
	r.mu.Unlock()
	if !ok {
		return false
	}
	info, err := r.root.Lstat(name)
	return err == nil && inode(info) == want
}

// forget forgets renames of entries that no longer exist.
func (r *renames) forget() {
	r.mu.Lock()
	known := maps.Clone(r.to)
	r.mu.Unlock()
	for name, was := range known {
		if _, err := r.root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		r.mu.Lock()
		if r.to[name] == was { // else it came again
			delete(r.to, name)
		}
		r.mu.Unlock()
	}
}

// claimsStep reports whether name is the final name of a checkpoint.
func claimsStep(name string) bool {
	if _, temporary := finalName(name); temporary {
		return false
	}
	_, file := stepOf(name, false)
	_, dir := stepOf(name, true)
	return file || dir
}
