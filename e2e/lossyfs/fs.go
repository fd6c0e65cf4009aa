package lossyfs

import (
	"fmt"
	"iter"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"
)

// FS is a file system in memory.
type FS struct {
	mu    sync.Mutex
	state *state
	base  *state // that of before the recording; nil: nothing is recorded
	ops   []op
	names map[uint64]string // the last name of each inode, for messages
	calls int
	fault Fault
}

// New returns an empty file system.
func New() *FS { return newFS(newState()) }

func newFS(s *state) *FS {
	f := &FS{state: s, names: map[uint64]string{rootID: ""}}
	s.walk(func(name string, n *node) { f.names[n.id] = name })
	return f
}

// Clone returns a copy with nothing recorded.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state.clone()
	s.flush()
	return newFS(s)
}

// Record begins a recording: what is there counts as synced.
func (f *FS) Record() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.base, f.ops = f.state.clone(), nil
}

// Recorded returns what happened since Record.
func (f *FS) Recorded() *Recording {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Recording{base: f.base, ops: f.ops[:len(f.ops):len(f.ops)]}
}

// Mark notes in the recording that something happened.
func (f *FS) Mark(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLocked(op{what: opMark, note: fmt.Sprintf(format, args...)})
}

// SyncAll makes everything durable, as syncfs does, or fails as that call is to fail. The
// kernel passes no such call on.
func (f *FS) SyncAll() syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errno := f.failLocked("syncfs", rootID, ""); errno != 0 {
		return errno
	}
	f.noteLocked(op{what: opSyncAll})
	return 0
}

// noteLocked carries a change out and records it.
func (f *FS) noteLocked(o op) {
	if o.at = time.Now().UnixNano(); o.path == "" {
		o.path = f.names[o.ino]
	}
	f.state.apply(o, kept)
	if f.base != nil {
		f.ops = append(f.ops, o)
	}
}

// WriteFile makes a file, and the directories on the way to it.
func (f *FS) WriteFile(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir := f.state.nodes[rootID]
	for part := range splitPath(path.Dir(name)) {
		next := f.state.nodes[dir.entries[part]]
		if next == nil {
			next = f.makeLocked(dir, part, syscall.S_IFDIR|0o755, 0, 0, "")
		}
		dir = next
	}
	n := f.state.nodes[dir.entries[path.Base(name)]]
	if n == nil {
		n = f.makeLocked(dir, path.Base(name), syscall.S_IFREG|0o644, 0, 0, "")
	}
	f.noteLocked(op{what: opTruncate, ino: n.id})
	f.noteLocked(op{what: opWrite, ino: n.id, data: data})
}

// ReadFile returns the bytes of a file; ok is false when there is none.
func (f *FS) ReadFile(name string) (data []byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.state.find(name)
	if n == nil || n.isDir() {
		return nil, false
	}
	return n.data, true
}

// Files returns the bytes of all files by their paths.
func (f *FS) Files() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := make(map[string]string)
	f.state.walk(func(name string, n *node) {
		if n.mode&syscall.S_IFMT == syscall.S_IFREG {
			files[name] = string(n.data)
		}
	})
	return files
}

// makeLocked makes a file, directory or link.
func (f *FS) makeLocked(dir *node, name string, mode, uid, gid uint32, target string) *node {
	id := f.state.last + 1
	now := time.Now().UnixNano()
	made := &node{id: id, mode: mode, uid: uid, gid: gid, mtime: now, ctime: now, target: target}
	f.names[id] = path.Join(f.names[dir.id], name)
	f.noteLocked(op{what: opNames, made: made, names: []entry{{dir.id, name, id}}, path: "make " + f.names[id]})
	return f.state.nodes[id]
}

// Call is a call of a program to the file system.
type Call struct {
	N    int    // 1 is the first since Inject
	Op   string // such as "write"
	Path string // below the root
}

// Changes reports whether the call would change something.
func (c Call) Changes() bool {
	return strings.Contains(" setattr mkdir mknod symlink unlink rmdir rename link create write fallocate ", " "+c.Op+" ")
}

// A Fault decides how a call fails: 0 lets it pass. [Short] makes a write take one byte only.
type Fault func(Call) syscall.Errno

// What is no error: a write that takes a part of the bytes, and a call that takes its time.
const (
	Short = syscall.Errno(1 << 20)
	Slow  = syscall.Errno(1 << 21)
)

// slow is how long a slow call takes.
const slow = 200 * time.Millisecond

// Inject has calls fail, or be counted; nil ends that.
func (f *FS) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.calls = fault, 0
}

// failLocked asks how a call on an inode, or a name in it, fails. A slow one waits here.
func (f *FS) failLocked(what string, ino uint64, name string) syscall.Errno {
	if f.fault == nil {
		return 0
	}
	f.calls++
	errno := f.fault(Call{f.calls, what, path.Join(f.names[ino], name)})
	if errno != Slow {
		return errno
	}
	f.mu.Unlock()
	time.Sleep(slow)
	f.mu.Lock()
	return 0
}

func splitPath(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(path.Clean(name), "/") {
			if part != "" && part != "." && !yield(part) {
				return
			}
		}
	}
}
