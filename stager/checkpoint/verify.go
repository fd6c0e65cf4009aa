package checkpoint

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// ErrRemoved reports that a step was removed while it was read.
var ErrRemoved = errors.New("the step was removed while it was being read")

// Verify reads every byte of a committed step and compares it with the COMMIT. dir is the step's
// directory in the store. An error of kind Corrupt, NotExist or Changed means that the step is
// invalid. ErrRemoved means that a retention removed it. With any other error the result is
// unknown. Verify reads a step again that is replaced meanwhile. It calls moved with byte counts
// from several goroutines.
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

// verify compares the store with a COMMIT.
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

// differs returns an error when a file's digest differs from the expected one.
func differs(key string, got, want backends.Checksum) error {
	if got == want {
		return nil
	}
	return backends.Errorf(backends.Corrupt, "read", key, "its digest is %s, but %s lists %s", got, commitKey, want)
}

// nowhere discards what is written to it.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Bad reports whether an error of Verify means that the step is invalid.
func Bad(err error) bool { return bad(err) }
