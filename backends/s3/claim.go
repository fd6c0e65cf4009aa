package s3

import (
	"context"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

var _ backends.Claims = (*bucket)(nil)

// guard returns how IfVersion is enforced; see the package comment.
func (b *bucket) guard() backends.Guard {
	switch {
	case b.matches:
		return backends.GuardServer
	case b.decidesOne:
		return backends.GuardClaim
	}
	return backends.GuardNone
}

// CreateClaim implements backends.Claims.
func (b *bucket) CreateClaim(ctx context.Context, name string) (string, error) {
	return objectstore.CreateClaim(ctx, b, name)
}

// ReadClaim implements backends.Claims.
func (b *bucket) ReadClaim(ctx context.Context, name string) (string, error) {
	obj, err := b.Stat(ctx, name)
	return string(obj.Version), err
}

// DeleteClaim implements backends.Claims.
func (b *bucket) DeleteClaim(ctx context.Context, name string) error { return b.Delete(ctx, name) }

// ifMatch returns the If-Match header value for stores that honor it; nil otherwise.
func (u *upload) ifMatch() *string {
	if u.replaces == "" || !u.b.matches {
		return nil
	}
	return new(`"` + string(u.replaces) + `"`)
}

// swap creates the object in place of the version in IfVersion.
func (u *upload) swap(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
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
		err = objectstore.CompareFirst(ctx, u.key, u.replaces, current, replace)
	}
	if backends.KindOf(err) == backends.Changed {
		// The response to an earlier request may have been lost.
		if there, herr := u.b.head(ctx, u.key); herr == nil && there.Metadata[markName] == u.mark {
			return u.b.described(u.key, there), nil
		}
	}
	return obj, err
}

// sweepClaims deletes stale claims in the directory of prefix.
func (b *bucket) sweepClaims(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	if b.guard() != backends.GuardClaim {
		return nil
	}
	return objectstore.SweepClaims(ctx, b, prefix, over, func(ctx context.Context, claims, token string) ([]backends.Object, string, error) {
		page, err := b.requests.list(ctx, selection{prefix: claims}, token)
		if err != nil {
			return nil, "", b.explain("sweep", prefix, err)
		}
		if !page.more {
			page.next = ""
		}
		return page.objects, page.next, nil
	})
}
