// Package remote is what versions 3 and 4.1 of NFS have in common: a tree of files
// that is named by paths, and errors with the status numbers of the protocol.
//
// Paths are relative to the tree's root, with "/" between names; "" is the root. A
// Tree's methods may be called from many goroutines at once and obey their contexts.
// What is asked of a server again, because its answer was lost, may have been done
// already: Rename, Link, Remove and Mkdir can therefore report Exist or NoEnt for
// their own success on version 3, and after a server's restart on 4.1.
package remote

import (
	"context"
	"time"
)

// Type is what a name stands for.
type Type uint32

// The types, by the protocol's numbers.
const (
	Regular   Type = 1
	Directory Type = 2
	Symlink   Type = 5
)

// Attr describes a file.
type Attr struct {
	Type    Type
	Size    int64
	FileID  uint64
	Change  uint64 // another one after each change; on version 3 the time of the last
	ModTime time.Time
}

// Entry is one name of a directory.
type Entry struct {
	Name string
	Attr Attr
}

// Block is what one read brought.
type Block struct {
	Data []byte
	Attr Attr // after the bytes were read
	EOF  bool

	Free func() // gives Data back; may be nil
}

// Release gives Data back.
func (b *Block) Release() {
	if b.Free != nil {
		b.Free()
	}
	*b = Block{}
}

// Verifier changes when a server may have lost what it had not yet written down.
type Verifier [8]byte

// Tree is the files of a server.
type Tree interface {
	// Stat describes what has a name, be it a symbolic link. Where one stands in the
	// middle of a path, this and all others answer SymlinkThere or NotDir.
	Stat(ctx context.Context, path string) (Attr, error)
	// ReadLink is where a symbolic link leads, in the link's own words.
	ReadLink(ctx context.Context, path string) (string, error)
	// ReadDir hands the entries of a directory, in any order, to each. "." and ".." are
	// not among them.
	ReadDir(ctx context.Context, path string, each func(Entry) error) error
	// Open opens a file to read, and reads at most n bytes at off. With once the file
	// is closed again in the same request, and File is nil.
	Open(ctx context.Context, path string, off int64, n int, once bool) (File, Block, error)
	// Create opens a file to write, and makes it if it is not there. Callers choose a
	// name that nobody else has: the request may be done twice.
	Create(ctx context.Context, path string) (File, error)
	// Rename renames within a directory, replacing what is there, and describes the file.
	Rename(ctx context.Context, f File, from, to string) (Attr, error)
	// Link gives f a second name unless that is taken, and removes the first.
	Link(ctx context.Context, f File, from, to string) (Attr, error)
	// Remove removes a name of the given type and nothing else; ErrType when it is of
	// another. A directory must be empty.
	Remove(ctx context.Context, path string, t Type) error
	Mkdir(ctx context.Context, path string) error
	// Sizes are the longest read and write that serve well.
	Sizes() (read, write int)
	Close() error
}

// File is an open file. ReadAt, WriteAt and Commit may be called from many goroutines
// at once.
type File interface {
	ReadAt(ctx context.Context, off int64, n int) (Block, error)
	// WriteAt writes n bytes, which fill puts into the request itself. It may write
	// fewer.
	WriteAt(ctx context.Context, off int64, n int, fill func([]byte) error) (int, Verifier, error)
	// Commit makes what was written durable, if its verifier is that of the writes.
	Commit(ctx context.Context) (Verifier, error)
	Attr(ctx context.Context) (Attr, error)
	Close(ctx context.Context) error
}
