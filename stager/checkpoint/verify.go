package checkpoint

import (
	"cmp"
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// Verify reads every byte of a committed step and compares it with what its COMMIT
// promises; dir is the step's folder in the store. An error of kind Corrupt, NotExist
// or Changed means that the step is not good, any other that it cannot be told now.
// moved is told of bytes as they come, from several goroutines.
func Verify(ctx context.Context, store *backends.Store, dir string, moved func(n int64)) error {
	commit, err := readCommit(ctx, store, dir)
	if err != nil {
		return err
	}
	objects, err := objectsOf(ctx, store, dir, &commit)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(store, 0))
	for _, f := range commit.Files {
		key := commit.key(dir, f)
		obj, ok := objects[key]
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if !ok || obj.Size != f.Size {
				return missingFile(key, f)
			}
			digest, err := backends.ParseChecksum(f.Digest)
			if err != nil {
				return err
			}
			h := digest.Algorithm.New()
			if _, err := store.ReadRange(gctx, obj, 0, f.Size, &counted{nowhere{}, moved}, h); err != nil {
				return err
			}
			return differs(key, backends.SumOf(digest.Algorithm, h), digest)
		})
	}
	return cmp.Or(g.Wait(), context.Cause(ctx))
}

// differs is an error when a file's digest is not the one that was promised.
func differs(key string, got, want backends.Checksum) error {
	if got == want {
		return nil
	}
	return backends.Errorf(backends.Corrupt, "read", key, "its digest is %s, and %s promises %s", got, commitKey, want)
}

// nowhere is a place for bytes that are only looked at.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Bad tells whether an error of Verify means that the step is not good.
func Bad(err error) bool { return bad(err) }
