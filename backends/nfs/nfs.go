package nfs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// partSize is a length at which opening a file no longer shows.
const partSize = 16 << 20

// share is a server's tree as a store. Keys are paths in that tree.
type share struct {
	tree  remote.Tree
	links *links
	left  backends.Orphans
	base  string // the URL's directory, which Delete never removes
	slots int
}

var (
	_ backends.Backend     = (*share)(nil)
	_ backends.PartCreator = (*share)(nil)
	_ backends.KeyChecker  = (*share)(nil)
)

// Capabilities are NFS's: RENAME replaces in one step, LINK fails in one step when the name
// is taken, and versions are compared by the client.
func (s *share) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim,
		Parallelism: max(s.slots/2, 1), PartSize: partSize,
	}
}

// Close removes what is left of broken writes and ends the connections.
func (s *share) Close() error {
	s.left.SweepAtClose(s.discard)
	return s.tree.Close()
}

// Stat describes one file.
func (s *share) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := s.stat(ctx, "stat", key); err != nil {
		return backends.Object{}, err
	}
	a, _, err := s.links.stat(ctx, key)
	if err == nil {
		err = regular("stat", key, a.Type)
	}
	if err != nil {
		return backends.Object{}, missing("stat", key, err)
	}
	return describe(key, a), nil
}

// CheckKey implements backends.KeyChecker.
func (s *share) CheckKey(key string) error { return checkKey("create", key) }

// stat is where every call for one key begins that does not write.
func (s *share) stat(ctx context.Context, op, key string) error {
	if err := ended(ctx, op, key); err != nil {
		return err
	}
	if err := checkKey(op, key); err != nil {
		return backends.Errorf(backends.NotExist, op, key, "%w", errors.Unwrap(err))
	}
	return nil
}

// regular refuses what is no file.
func regular(op, key string, t remote.Type) error {
	switch t {
	case remote.Regular:
		return nil
	case remote.Directory:
		return backends.Errorf(backends.NotExist, op, key, "this is a directory, not a file")
	}
	return backends.Errorf(backends.NotExist, op, key, "this is a device or a socket, not a file")
}

func version(a remote.Attr) backends.Version {
	return backends.Version(fmt.Sprintf("%x-%x-%x", a.Change, a.FileID, a.Size))
}

// describe is a file as an object.
func describe(key string, a remote.Attr) backends.Object {
	return backends.Object{Key: key, Size: a.Size, ModTime: a.ModTime, Version: version(a)}
}

// Delete removes a file, or a link to one and not the file, and the directories that it leaves empty up to the URL's own.
func (s *share) Delete(ctx context.Context, key string) error {
	at := key
	err := s.stat(ctx, "delete", key)
	if err == nil {
		err = s.links.at(ctx, path.Dir(key), func(dir string) error {
			at = path.Join(dir, path.Base(key))
			return s.tree.Remove(ctx, at, remote.Regular)
		})
	}
	if errors.Is(err, remote.ErrType) {
		err = s.tree.Remove(ctx, at, remote.Symlink)
	}
	if errors.Is(err, remote.ErrType) {
		return nil // it is no object
	}
	if err = missing("delete", key, err); err != nil {
		if backends.KindOf(err) == backends.NotExist {
			return nil
		}
		return err
	}
	s.prune(ctx, path.Dir(at))
	return nil
}

// prune removes dir and those it lies in, as far as they are empty.
func (s *share) prune(ctx context.Context, dir string) {
	for ; dir != "." && strings.HasPrefix(dir+"/", s.base) && dir+"/" != s.base; dir = path.Dir(dir) {
		if s.tree.Remove(ctx, dir, remote.Directory) != nil {
			return
		}
	}
}
