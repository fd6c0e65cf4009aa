package objectstore

import (
	"context"
	"crypto/rand"
	"io"

	"github.com/stager-dev/stager/backends"
)

// CreateClaim creates a claim in a store whose claims are objects, using a conditional create. The
// token is the version of an object of random bytes.
func CreateClaim(ctx context.Context, store backends.Sink, name string) (string, error) {
	w, err := store.Create(ctx, name, backends.CreateOptions{Size: -1, IfAbsent: true})
	if err == nil {
		_, err = io.WriteString(w, rand.Text())
	}
	if err != nil {
		return "", err
	}
	obj, err := w.Commit(ctx)
	return string(obj.Version), err
}

// CompareFirst replaces an object in a store without any guard. Two simultaneous writers may both
// succeed. It fails with kind Changed if the object's version differs from want.
func CompareFirst(ctx context.Context, key string, want backends.Version,
	current func(context.Context) (backends.Version, error), replace func(context.Context) error,
) error {
	is, err := current(ctx)
	if err != nil && backends.KindOf(err) != backends.NotExist {
		return err
	}
	if err := backends.CompareVersion(key, want, is); err != nil {
		return err
	}
	return replace(ctx)
}

// SweepClaims deletes the claims in the directory of prefix for which over returns true. page
// returns one page of a listing and the token of the next page. At the end that token is "" or
// repeats the previous one.
func SweepClaims(ctx context.Context, store backends.Sink, prefix string, over func(backends.Orphan) bool,
	page func(ctx context.Context, claims, token string) (objects []backends.Object, next string, err error),
) error {
	claims, ok := backends.ClaimsBelow(prefix)
	for token := ""; ok; {
		objects, next, err := page(ctx, claims, token)
		if err != nil {
			return err
		}
		for _, obj := range objects {
			if !backends.IsClaim(obj.Key) || !over(backends.Orphan{Key: obj.Key, Size: obj.Size, Touched: obj.ModTime, Marked: true}) {
				continue
			}
			if err := store.Delete(ctx, obj.Key); err != nil {
				return err
			}
		}
		if next == "" || next == token {
			return nil
		}
		token = next
	}
	return nil
}
