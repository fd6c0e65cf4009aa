package nfs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync/atomic"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// partSize is large enough to make the cost of opening a file negligible.
const partSize = 16 << 20

// share is the tree of a server as a store. Keys are paths in that tree.
type share struct {
	*fileshare.Share
	tree  remote.Tree
	links *links
	base  string // directory of the URL, which Delete never removes
	slots int

	streams atomic.Int32 // open readers of more than one block
}

var _ backends.Backend = (*share)(nil)

// Capabilities implements backends.Backend. RENAME replaces atomically, LINK fails atomically if
// the name exists, and the client compares versions.
func (s *share) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim,
		Parallelism: max(s.slots/2, 1), PartSize: partSize,
	}
}

func (protocol) Classify(op, key string, err error) error { return classify(op, key, err) }
func (protocol) Same(a, b backends.Version) bool          { return a == b }
func (p protocol) Close() error                           { return p.s.tree.Close() }

// Stat returns the attributes of the file that a path leads to.
func (p protocol) Stat(ctx context.Context, name string) (fileshare.Info, error) {
	a, _, err := p.s.links.stat(ctx, name)
	return attributes(a), err
}

func version(i fileshare.Info) backends.Version {
	return backends.Version(fmt.Sprintf("%x-%x-%x", i.Change, i.ID, i.Size))
}

// Delete removes a link, not its target.
func (p protocol) Delete(ctx context.Context, key string) error {
	at := key
	err := p.s.links.at(ctx, path.Dir(key), func(dir string) error {
		at = path.Join(dir, path.Base(key))
		return p.s.tree.Remove(ctx, at, remote.Regular)
	})
	if errors.Is(err, remote.ErrType) {
		err = p.s.tree.Remove(ctx, at, remote.Symlink)
	}
	if errors.Is(err, remote.ErrType) {
		return nil // not an object
	}
	return err
}
