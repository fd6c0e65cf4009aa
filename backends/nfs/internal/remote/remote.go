// Package remote defines what NFS versions 3 and 4.1 have in common: a [Tree] of files with paths
// as names, and errors with the status codes of the protocol.
//
// Paths are relative to the root of the tree, with "/" between names; "" is the root. The methods
// of a Tree are safe for concurrent use and respect their contexts. If a response is lost, a
// request is repeated, and the server may execute it twice. Rename, Link, Remove and Mkdir may
// therefore return Exist or NoEnt for their own success: on version 3, and on 4.1 after a restart
// of the server.
package remote

import (
	"context"
	"time"
)

// Type is the type of a file.
type Type uint32

// File types, by the numbers of the protocol.
const (
	Regular   Type = 1
	Directory Type = 2
	Symlink   Type = 5
	FIFO      Type = 7
)

// Attr holds the attributes of a file.
type Attr struct {
	Type    Type
	Size    int64
	FileID  uint64
	Change  uint64 // differs after each change; on version 3 the ctime
	ModTime time.Time
}

// Entry is one name of a directory.
type Entry struct {
	Name string
	Attr Attr
	Gone bool // it was removed or replaced while the directory was read
}

// Block is the result of a read.
type Block struct {
	Data []byte
	Attr Attr // after the data was read
	EOF  bool

	Free func() // frees Data; may be nil
}

// Release frees Data.
func (b *Block) Release() {
	if b.Free != nil {
		b.Free()
	}
	*b = Block{}
}

// Verifier changes when a server may have lost data that was not yet durable.
type Verifier [8]byte

// Tree is the file system of a server.
type Tree interface {
	// Stat returns the attributes of a path without following a final symbolic link. If a link is
	// in the middle of the path, Stat and all other methods return SymlinkThere or NotDir.
	Stat(ctx context.Context, path string) (Attr, error)
	// ReadLink returns the target of a symbolic link, unchanged.
	ReadLink(ctx context.Context, path string) (string, error)
	// ReadDir calls each for every entry of a directory, in any order, without "." and "..".
	ReadDir(ctx context.Context, path string, each func(Entry) error) error
	// Open opens a file for reading, and reads at most n bytes at off. If once is true, the same
	// request closes the file, and File is nil.
	Open(ctx context.Context, path string, off int64, n int, once bool) (File, Block, error)
	// Create opens a file for writing and creates it if necessary. Callers use a unique name,
	// because the request may be executed twice.
	Create(ctx context.Context, path string) (File, error)
	// Rename renames a file within a directory, replaces an existing one, and returns its
	// attributes, or ErrReplaced if it did that and another file has the name already.
	Rename(ctx context.Context, f File, from, to string) (Attr, error)
	// Link links f to a second name, unless that exists, and removes the first. It returns what Rename does.
	Link(ctx context.Context, f File, from, to string) (Attr, error)
	// Remove removes a name if it has the given type, and returns ErrType if it has another. A
	// directory must be empty.
	Remove(ctx context.Context, path string, t Type) error
	Mkdir(ctx context.Context, path string) error
	// Sizes returns the best read and write sizes.
	Sizes() (read, write int)
	Close() error
}

// File is an open file. ReadAt, WriteAt and Commit are safe for concurrent use.
type File interface {
	ReadAt(ctx context.Context, off int64, n int) (Block, error)
	// WriteAt writes n bytes, which fill copies directly into the request. It may write fewer.
	WriteAt(ctx context.Context, off int64, n int, fill func([]byte) error) (int, Verifier, error)
	// Commit makes the written data durable if it returns the verifier of the writes. It also returns
	// the attributes.
	Commit(ctx context.Context) (Verifier, Attr, error)
	Attr(ctx context.Context) (Attr, error)
	Close(ctx context.Context) error
}
