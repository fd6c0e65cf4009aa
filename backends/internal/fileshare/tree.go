package fileshare

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A Tree is a tree of directories on a server, as far as listing and sweeping need it. Its methods
// are safe for concurrent use and return when ctx ends.
type Tree interface {
	// CheckKey returns an error of kind Invalid if key cannot be the path of an object. See
	// [CheckKey].
	CheckKey(op, key string) error
	// Reserved reports whether a name is one of stager's own, which no key contains. See
	// [Reserved].
	Reserved(name string) bool
	// Unreachable returns why no key can contain a name that ReadDir returned, or "". See
	// [Unreachable].
	Unreachable(name string) string
	// Version returns the version of a file with these attributes.
	Version(i Info) backends.Version
	// Missing converts an error of a call that looks up a file to a [backends.Error]. It has kind
	// NotExist if there is no file, also because none can have the name.
	Missing(op, key string, err error) error

	// Locate returns the place of the directory with this path, which is "" for the root.
	Locate(ctx context.Context, dir string) (Place, error)
	// ReadDir returns the entries of a directory for which wanted returns true, in any order,
	// without "." and "..". It calls wanted for each name. It describes links, not their targets.
	ReadDir(ctx context.Context, dir Place, wanted func(name string) bool) ([]Entry, error)
	// Follow returns the entry of a link with the attributes and the place of its target.
	Follow(ctx context.Context, key string, link Entry) (Entry, error)
	// RemoveOrphan removes an entry of ReadDir that a killed writer has left. A missing one, or one
	// that the server knows to be in use, is not an error.
	RemoveOrphan(ctx context.Context, key string, e Entry) error
	// Prune removes a directory and its parents as long as they are empty. See [Prune].
	Prune(ctx context.Context, dir Place)
}

// Info holds the attributes of a file.
type Info struct {
	Type    fs.FileMode // type bits; 0 for a regular file
	Size    int64
	ModTime time.Time
	ID      uint64 // identifies the file on the server, if the protocol has ids
	Change  uint64 // differs after each change, if the protocol has such a counter
}

// Object returns the object for a file.
func (i Info) Object(t Tree, key string) backends.Object {
	return backends.Object{Key: key, Size: i.Size, ModTime: i.ModTime, Version: t.Version(i)}
}

// Regular returns an error of kind NotExist if the file is not a regular one.
func (i Info) Regular(op, key string) error {
	switch {
	case i.Type.IsDir():
		return backends.Errorf(backends.NotExist, op, key, "this is a directory, not a file")
	case !i.Type.IsRegular():
		return backends.Errorf(backends.NotExist, op, key, "this is a device, a socket or a FIFO, not a file")
	}
	return nil
}

// A Place is a directory.
type Place struct {
	Path string // below the root of the tree, with links: the keys in the directory begin with it
	At   string // identifies the directory, whichever links lead to it, such as a path without links
}

// An Entry is a name in a directory.
type Entry struct {
	Name string
	Info
	At     string // Place.At, if it is a directory
	Claims bool   // a directory that holds claims of stager and nothing else
}

// CheckCall returns an error if the context has ended, or of kind NotExist if no object can have
// the key. It is the first step of calls that do not write.
func CheckCall(ctx context.Context, t Tree, op, key string) error {
	if err := Ended(ctx, op, key); err != nil {
		return err
	}
	if err := t.CheckKey(op, key); err != nil {
		return backends.Errorf(backends.NotExist, op, key, "%w", errors.Unwrap(err))
	}
	return nil
}

// Prune calls remove for dir and its parents up to and without base, which is "" for the root. It
// ends with the first error: removing a directory that is not empty fails.
func Prune(dir, base string, remove func(dir string) error) {
	if base != "" {
		base += "/"
	}
	for ; dir != "." && dir != "" && strings.HasPrefix(dir, base); dir = path.Dir(dir) {
		if remove(dir) != nil {
			return
		}
	}
}

// isMissing classifies an error of a call that looks up a file, and reports whether there is none. An
// error that is classified already comes from opening a session: a missing share is not a missing
// file.
func isMissing(t Tree, op, key string, err error) (bool, error) {
	var done *backends.Error
	if err == nil || errors.As(err, &done) {
		return false, err
	}
	err = t.Missing(op, key, err)
	return backends.KindOf(err) == backends.NotExist, err
}
