package oss

import (
	"context"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

var _ backends.Claims = (*bucket)(nil)

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

// swap creates the object in place of the version in IfVersion. OSS has no If-Match for writes.
func (u *upload) swap(ctx context.Context, small *backends.Part, size int64) (obj backends.Object, err error) {
	current := func(ctx context.Context) (backends.Version, error) {
		is, err := u.b.Stat(ctx, u.key)
		return is.Version, err
	}
	replace := func(ctx context.Context) error {
		obj, err = u.make(ctx, small, size)
		return err
	}
	if u.b.conditional {
		if u.claim == nil {
			u.claim = backends.NewClaim(u.b, u.key, u.replaces)
		}
		err = u.claim.Replace(ctx, current, replace)
	} else {
		err = objectstore.CompareFirst(ctx, u.key, u.replaces, current, replace)
	}
	if backends.KindOf(err) == backends.Changed {
		// The response to an earlier request may have been lost.
		if h, herr := u.b.head(ctx, u.key); herr == nil && h.Get(oss.HTTPHeaderOssMetaPrefix+markName) == u.mark {
			return described(u.key, h), nil
		}
	}
	return obj, err
}

// sweepClaims deletes stale claims in the directory of prefix.
func (b *bucket) sweepClaims(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	if !b.conditional {
		return nil
	}
	return objectstore.SweepClaims(ctx, b, prefix, over, func(ctx context.Context, claims, token string) (objects []backends.Object, next string, err error) {
		page, err := b.page(ctx, selection{prefix: claims}, token)
		if err != nil {
			return nil, "", b.explain("sweep", prefix, err)
		}
		for _, entry := range page.Objects {
			objects = append(objects, backends.Object{Key: entry.Key, Size: entry.Size, ModTime: entry.LastModified})
		}
		if page.IsTruncated {
			next = page.NextContinuationToken
		}
		return objects, next, nil
	})
}
