package s3

import (
	"context"
	"crypto/rand"
	"io"

	"github.com/stager-dev/stager/backends"
)

var _ backends.Claims = (*bucket)(nil)

// guard is how IfVersion is kept; see the package comment.
func (b *bucket) guard() backends.Guard {
	switch {
	case b.matches:
		return backends.GuardServer
	case b.decidesOne:
		return backends.GuardClaim
	}
	return backends.GuardNone
}

// CreateClaim implements backends.Claims. The token is the ETag of random bytes.
func (b *bucket) CreateClaim(ctx context.Context, name string) (string, error) {
	w, err := b.Create(ctx, name, backends.CreateOptions{Size: -1, IfAbsent: true})
	if err == nil {
		_, err = io.WriteString(w, rand.Text())
	}
	if err != nil {
		return "", err
	}
	obj, err := w.Commit(ctx)
	return string(obj.Version), err
}

// ReadClaim implements backends.Claims.
func (b *bucket) ReadClaim(ctx context.Context, name string) (string, error) {
	obj, err := b.Stat(ctx, name)
	return string(obj.Version), err
}

// DeleteClaim implements backends.Claims.
func (b *bucket) DeleteClaim(ctx context.Context, name string) error { return b.Delete(ctx, name) }

// ifMatch is the header by which a store that heeds it replaces one version only.
func (u *upload) ifMatch() *string {
	if u.replaces == "" || !u.b.matches {
		return nil
	}
	return new(`"` + string(u.replaces) + `"`)
}

// swap makes the object in place of the version that IfVersion says.
func (u *upload) swap(ctx context.Context, small *io.SectionReader, size int64) (obj backends.Object, err error) {
	current := func(ctx context.Context) (backends.Version, error) {
		is, err := u.b.Stat(ctx, u.key)
		return is.Version, err
	}
	replace := func(ctx context.Context) error {
		obj, err = u.make(ctx, small, size)
		return err
	}
	switch u.b.guard() {
	case backends.GuardServer:
		return u.make(ctx, small, size)
	case backends.GuardClaim:
		if u.claim == nil {
			u.claim = backends.NewClaim(u.b, u.key, u.replaces)
		}
		err = u.claim.Replace(ctx, current, replace)
	default:
		err = u.compareFirst(ctx, current, replace)
	}
	if backends.KindOf(err) == backends.Changed {
		// The answer to an earlier request may have been lost.
		if there, herr := u.b.head(ctx, u.key); herr == nil && there.Metadata[markName] == u.mark {
			return u.b.described(u.key, there), nil
		}
	}
	return obj, err
}

// compareFirst is what can be done where the store decides nothing: of two writers at
// the same moment both may succeed.
func (u *upload) compareFirst(ctx context.Context, current func(context.Context) (backends.Version, error), replace func(context.Context) error) error {
	is, err := current(ctx)
	if err != nil && backends.KindOf(err) != backends.NotExist {
		return err
	}
	if err := backends.CompareVersion(u.key, u.replaces, is); err != nil {
		return err
	}
	return replace(ctx)
}

// sweepClaims deletes claims in the directory of prefix that nobody holds any more.
func (b *bucket) sweepClaims(ctx context.Context, prefix string, over func(backends.Remains) bool) error {
	claims, ok := backends.ClaimsBelow(prefix)
	if !ok || b.guard() != backends.GuardClaim {
		return nil
	}
	for token := ""; ; {
		page, _, err := b.reader.list(ctx, claims, "", token, nil)
		if err != nil {
			return b.explain("sweep", prefix, err)
		}
		for _, obj := range page.objects {
			if !backends.IsClaim(obj.Key) || !over(backends.Remains{Key: obj.Key, Size: obj.Size, Touched: obj.ModTime, Marked: true}) {
				continue
			}
			if err := b.Delete(ctx, obj.Key); err != nil {
				return err
			}
		}
		if !page.more || page.next == token {
			return nil
		}
		token = page.next
	}
}
