package lossyfs

import (
	"maps"
	"path"
	"slices"
	"syscall"
	"time"
)

// rootID is the root's inode number.
const rootID = 1

// node is a file, a directory or a symbolic link.
type node struct {
	id           uint64
	mode         uint32 // with the type
	uid, gid     uint32
	mtime, ctime int64 // nanoseconds
	data         []byte
	target       string            // of a link
	entries      map[string]uint64 // of a directory
	links        int               // names, in this state
}

func (n *node) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

// state is all that a disk holds. It is not safe for concurrent use.
type state struct {
	nodes map[uint64]*node
	last  uint64 // the highest inode number
}

func newState() *state {
	now := time.Now().UnixNano()
	root := &node{id: rootID, mode: syscall.S_IFDIR | 0o755, mtime: now, ctime: now, entries: make(map[string]uint64), links: 1}
	return &state{nodes: map[uint64]*node{rootID: root}, last: rootID}
}

func (s *state) clone() *state {
	c := &state{nodes: make(map[uint64]*node, len(s.nodes)), last: s.last}
	for id, n := range s.nodes {
		copied := *n
		copied.data, copied.entries = slices.Clone(n.data), maps.Clone(n.entries)
		c.nodes[id] = &copied
	}
	return c
}

// find returns what has a path; nil when there is nothing.
func (s *state) find(name string) *node {
	n := s.nodes[rootID]
	for part := range splitPath(name) {
		if n == nil || !n.isDir() {
			return nil
		}
		n = s.nodes[n.entries[part]]
	}
	return n
}

// walk calls f with each path and what has it, in the order of names.
func (s *state) walk(f func(name string, n *node)) { s.walkFrom("", s.nodes[rootID], f) }

func (s *state) walkFrom(name string, dir *node, f func(name string, n *node)) {
	for _, entry := range slices.Sorted(maps.Keys(dir.entries)) {
		n := s.nodes[dir.entries[entry]]
		f(path.Join(name, entry), n)
		if n.isDir() {
			s.walkFrom(path.Join(name, entry), n, f)
		}
	}
}

// settle drops what has no name any more, and counts the names of the rest. A disk does so
// when it is mounted after a loss of power.
func (s *state) flush() {
	for _, n := range s.nodes {
		n.links = 0
	}
	s.nodes[rootID].links = 1
	s.walk(func(_ string, n *node) { n.links++ })
	for id, n := range s.nodes {
		if n.links == 0 {
			delete(s.nodes, id)
		}
	}
}

// op is a change, or a sync.
type op struct {
	what  opKind
	ino   uint64 // of data, attributes, and syncs
	path  string // for messages
	off   int64
	data  []byte // written
	size  int64  // after a truncation
	attr  *node  // mode, owner and times after a change of them
	names []entry
	made  *node // by the change of names
	at    int64
	note  string // of a mark
}

type opKind int

const (
	opWrite opKind = iota
	opTruncate
	opAttr
	opNames
	opSync    // of a file or a directory
	opSyncAll // of the file system
	opMark    // by the test
)

func (k opKind) String() string {
	return [...]string{"write", "truncate", "attributes", "names", "sync", "syncfs", "mark"}[k]
}

// entry gives a name to an inode, or takes it away: ino is 0.
type entry struct {
	dir  uint64
	name string
	ino  uint64
}

// keep says how much of a change is on the disk.
type keep int

const (
	lost     keep = iota
	half          // of a write, the first half of its bytes
	sizeOnly      // of a write, only the size that it made
	kept
)

// apply carries a change out.
func (s *state) apply(o op, k keep) {
	if k == lost {
		return
	}
	n := s.nodes[o.ino]
	switch o.what {
	case opWrite:
		if n == nil {
			return
		}
		data := o.data
		if end := int(o.off) + len(data); k != half && end > len(n.data) {
			n.data = append(n.data, make([]byte, end-len(n.data))...)
		}
		switch k {
		case sizeOnly:
			data = nil
		case half:
			data = data[:len(data)/2]
			if end := int(o.off) + len(data); end > len(n.data) {
				n.data = append(n.data, make([]byte, end-len(n.data))...)
			}
		}
		copy(n.data[min(int(o.off), len(n.data)):], data)
		n.mtime, n.ctime = o.at, o.at
	case opTruncate:
		if n == nil {
			return
		}
		if size := int(o.size); size <= len(n.data) {
			n.data = n.data[:size:size]
		} else {
			n.data = append(n.data, make([]byte, size-len(n.data))...)
		}
		n.mtime, n.ctime = o.at, o.at
	case opAttr:
		if n != nil {
			n.mode, n.uid, n.gid, n.mtime, n.ctime = o.attr.mode, o.attr.uid, o.attr.gid, o.attr.mtime, o.at
		}
	case opNames:
		s.applyNames(o)
	case opSync, opSyncAll, opMark:
	}
}

func (s *state) applyNames(o op) {
	if o.made != nil && s.nodes[o.made.id] == nil {
		made := *o.made
		if made.isDir() {
			made.entries = make(map[string]uint64)
		}
		s.nodes[made.id], s.last = &made, max(s.last, made.id)
	}
	for _, e := range o.names {
		dir := s.nodes[e.dir]
		if dir == nil {
			continue // its own name was lost
		}
		if old := s.nodes[dir.entries[e.name]]; old != nil {
			old.links--
			old.ctime = o.at
		}
		dir.mtime, dir.ctime = o.at, o.at
		n := s.nodes[e.ino]
		if n == nil {
			delete(dir.entries, e.name)
			continue
		}
		dir.entries[e.name] = e.ino
		n.links++
		n.ctime = o.at
	}
}
