package checkpoint

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// ErrRemoved says that a step was removed while it was read.
var ErrRemoved = errors.New("the step was removed while it was read")

// Verify reads every byte of a committed step and compares it with what its COMMIT
// promises; dir is the step's directory in the store. An error of kind Corrupt, NotExist
// or Changed means that the step is not good, ErrRemoved that a retention removed it, any
// other that it cannot be told now. A step that is replaced meanwhile is read again.
// moved is told of bytes as they come, from several goroutines.
func Verify(ctx context.Context, store *backends.Store, dir string, moved func(n int64)) error {
	for tries := 1; ; tries++ {
		commit, obj, err := readCommitAt(ctx, store, dir)
		if err == nil {
			err = verify(ctx, store, dir, &commit, moved)
		}
		if err == nil || !bad(err) {
			return err
		}
		now, serr := store.Stat(ctx, dir+"/"+commitKey)
		switch {
		case backends.KindOf(serr) == backends.NotExist:
			return ErrRemoved
		case serr != nil:
			return serr
		case now.Version == obj.Version && now.ModTime.Equal(obj.ModTime) || tries == maxListings:
			return err
		}
	}
}

// verify compares what the store has with a COMMIT.
func verify(ctx context.Context, store *backends.Store, dir string, commit *Commit, moved func(n int64)) error {
	objects, err := objectsOf(ctx, store, dir, commit)
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
