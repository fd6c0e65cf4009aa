package nfstest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
)

// kind is the type of a node, by the number of the protocol.
type kind uint32

const (
	regular   kind = 1
	directory kind = 2
	symlink   kind = 5
)

// node is a file, a directory or a symbolic link.
type node struct {
	id      uint64
	kind    kind
	change  uint64
	changed time.Time
	data    []byte // of a link: its target
	durable []byte // data that survives a restart
	names   map[string]*node
	links   int
}

func (n *node) touch() {
	n.change++
	n.changed = time.Now()
}

// sorted returns the names of a directory in listing order.
func (n *node) sorted() []string {
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *Server) newNodeLocked(k kind) *node {
	s.lastNode++
	n := &node{id: s.lastNode, kind: k}
	if k == directory {
		n.names = make(map[string]*node)
	}
	n.touch()
	s.nodes[n.id] = n
	return n
}

// putLocked links a node to a name and replaces an existing one.
func (s *Server) putLocked(dir *node, name string, n *node) {
	s.dropLocked(dir, name)
	dir.names[name] = n
	dir.touch()
	n.links++
}

// dropLocked removes a name. A file without names is removed.
func (s *Server) dropLocked(dir *node, name string) {
	n := dir.names[name]
	if n == nil {
		return
	}
	delete(dir.names, name)
	dir.touch()
	if n.links--; n.links == 0 {
		delete(s.nodes, n.id)
	}
}

// findLocked returns the node of a path, or nil.
func (s *Server) findLocked(path string) *node {
	n := s.root
	for _, name := range strings.Split(path, "/") {
		if name == "" {
			continue
		}
		if n = n.names[name]; n == nil {
			return nil
		}
	}
	return n
}

// placeLocked creates the parents of a path, and returns the last of them and the last name.
func (s *Server) placeLocked(path string) (*node, string) {
	dir, names := s.root, strings.Split(path, "/")
	for _, name := range names[:len(names)-1] {
		next := dir.names[name]
		if next == nil {
			next = s.newNodeLocked(directory)
			s.putLocked(dir, name, next)
		}
		dir = next
	}
	return dir, names[len(names)-1]
}

// Mkdir creates a directory and its parents.
func (s *Server) Mkdir(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placeLocked(path + "/.")
}

// WriteFile creates or replaces a file.
func (s *Server) WriteFile(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, name := s.placeLocked(path)
	n := s.newNodeLocked(regular)
	n.data, n.durable = bytes.Clone(data), bytes.Clone(data)
	s.putLocked(dir, name, n)
}

// Change changes the contents of an existing file.
func (s *Server) Change(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.findLocked(path)
	n.data, n.durable = bytes.Clone(data), bytes.Clone(data)
	n.touch()
}

// Symlink creates a symbolic link.
func (s *Server) Symlink(target, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, name := s.placeLocked(path)
	n := s.newNodeLocked(symlink)
	n.data = []byte(target)
	s.putLocked(dir, name, n)
}

// Move renames a file or directory.
func (s *Server) Move(from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.findLocked(from)
	dir, name := s.placeLocked(to)
	s.putLocked(dir, name, n)
	dir, name = s.placeLocked(from)
	s.dropLocked(dir, name)
}

// Remove removes a name and everything below it.
func (s *Server) Remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, name := s.placeLocked(path)
	s.dropLocked(dir, name)
}

// ReadFile returns the contents of a file and whether it exists.
func (s *Server) ReadFile(path string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.findLocked(path)
	if n == nil || n.kind != regular {
		return nil, false
	}
	return bytes.Clone(n.data), true
}

// Names returns the sorted names in a directory.
func (s *Server) Names(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.findLocked(path); n != nil {
		return n.sorted()
	}
	return nil
}

// writeAt writes data, durably or not.
func (n *node) writeAt(p []byte, off int, durable bool) {
	if need := off + len(p); need > len(n.data) {
		n.data = append(n.data, make([]byte, need-len(n.data))...)
	}
	copy(n.data[off:], p)
	if durable {
		n.durable = bytes.Clone(n.data)
	}
	n.touch()
}

// readAt returns data and whether it reaches the end of the file.
func (n *node) readAt(off, most uint64) ([]byte, bool) {
	size := uint64(len(n.data))
	off = min(off, size)
	end := min(off+most, size)
	return n.data[off:end], end == size
}

// The methods below change the tree for both versions. They return status codes of version 4, of
// which version 3 has a subset.

func (n *node) handle() []byte { return binary.BigEndian.AppendUint64(nil, n.id) }

// nodeLocked returns the node of a handle, or nil.
func (s *Server) nodeLocked(handle []byte) *node {
	if len(handle) != 8 {
		return nil
	}
	return s.nodes[binary.BigEndian.Uint64(handle)]
}

func (s *Server) childLocked(dir *node, name string) (*node, nfsv4.Nfsstat4) {
	switch {
	case dir.kind != directory:
		return nil, nfsv4.NFS4ERR_NOTDIR
	case len(name) > 255:
		return nil, nfsv4.NFS4ERR_NAMETOOLONG
	case dir.names[name] == nil:
		return nil, nfsv4.NFS4ERR_NOENT
	}
	return dir.names[name], nfsv4.NFS4_OK
}

func (s *Server) makeLocked(dir *node, name string, k kind) (*node, nfsv4.Nfsstat4) {
	if _, status := s.childLocked(dir, name); status == nfsv4.NFS4_OK {
		return nil, nfsv4.NFS4ERR_EXIST
	} else if status != nfsv4.NFS4ERR_NOENT {
		return nil, status
	}
	if s.ReadOnly || dir == s.root && s.ReadOnlyRoot {
		return nil, nfsv4.NFS4ERR_ROFS
	}
	n := s.newNodeLocked(k)
	s.putLocked(dir, name, n)
	return n, nfsv4.NFS4_OK
}

func (s *Server) removeLocked(dir *node, name string) nfsv4.Nfsstat4 {
	n, status := s.childLocked(dir, name)
	if status == nfsv4.NFS4_OK && len(n.names) > 0 {
		status = nfsv4.NFS4ERR_NOTEMPTY
	}
	if status == nfsv4.NFS4_OK {
		s.dropLocked(dir, name)
	}
	return status
}

func (s *Server) renameLocked(from *node, old string, to *node, name string) nfsv4.Nfsstat4 {
	n, status := s.childLocked(from, old)
	if status != nfsv4.NFS4_OK {
		return status
	}
	if there := to.names[name]; there != nil && there != n && there.kind == directory {
		return nfsv4.NFS4ERR_EXIST
	}
	s.putLocked(to, name, n)
	s.dropLocked(from, old)
	return nfsv4.NFS4_OK
}

func (s *Server) linkLocked(n, dir *node, name string) nfsv4.Nfsstat4 {
	if _, status := s.childLocked(dir, name); status == nfsv4.NFS4_OK {
		return nfsv4.NFS4ERR_EXIST
	} else if status != nfsv4.NFS4ERR_NOENT {
		return status
	}
	s.putLocked(dir, name, n) // keeps the time of the last write
	return nfsv4.NFS4_OK
}

func (s *Server) cutToWrite(p []byte) []byte {
	if s.MaxWrite > 0 {
		p = p[:min(len(p), s.MaxWrite)]
	}
	return p
}
