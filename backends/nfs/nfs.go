package nfs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// partSize is large enough to make the cost of opening a file negligible.
const partSize = 16 << 20

// share is the tree of a server as a store. Keys are paths in that tree.
type share struct {
	tree  remote.Tree
	links *links
	left  backends.Orphans
	base  string // directory of the URL, which Delete never removes
	slots int
}

var (
	_ backends.Backend     = (*share)(nil)
	_ backends.PartCreator = (*share)(nil)
	_ backends.KeyChecker  = (*share)(nil)
)

// Capabilities implements backends.Backend. RENAME replaces atomically, LINK fails atomically if
// the name exists, and the client compares versions.
func (s *share) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim,
		Parallelism: max(s.slots/2, 1), PartSize: partSize,
	}
}

// Close removes the temporary files of failed writes and closes the connections.
func (s *share) Close() error {
	s.left.SweepAtClose(s.discard)
	return s.tree.Close()
}

// Stat implements backends.Source.
func (s *share) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := fileshare.CheckCall(ctx, tree{s}, "stat", key); err != nil {
		return backends.Object{}, err
	}
	a, _, err := s.links.stat(ctx, key)
	if err == nil {
		err = attributes(a).Regular("stat", key)
	}
	if err != nil {
		return backends.Object{}, missing("stat", key, err)
	}
	return describe(key, a), nil
}

// CheckKey implements backends.KeyChecker.
func (s *share) CheckKey(key string) error { return fileshare.CheckKey("create", key) }

func version(i fileshare.Info) backends.Version {
	return backends.Version(fmt.Sprintf("%x-%x-%x", i.Change, i.ID, i.Size))
}

// describe returns the object for a file.
func describe(key string, a remote.Attr) backends.Object { return attributes(a).Object(tree{}, key) }

// Delete implements backends.Sink. It removes a link, not its target. It also removes directories
// that become empty, up to but not including that of the URL.
func (s *share) Delete(ctx context.Context, key string) error {
	at := key
	err := fileshare.CheckCall(ctx, tree{s}, "delete", key)
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
		return nil // not an object
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

// prune removes dir and its parents as long as they are empty.
func (s *share) prune(ctx context.Context, dir string) {
	fileshare.Prune(dir, strings.TrimSuffix(s.base, "/"), func(dir string) error {
		return s.tree.Remove(ctx, dir, remote.Directory)
	})
}
