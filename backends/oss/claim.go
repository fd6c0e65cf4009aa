package oss

import (
	"context"
	"crypto/rand"
	"io"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
)

var _ backends.Claims = (*bucket)(nil)

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

// swap makes the object in place of the version that IfVersion says. OSS has no
// If-Match for writes.
func (u *upload) swap(ctx context.Context, small *io.SectionReader, size int64) (obj backends.Object, err error) {
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
		err = u.compareFirst(ctx, current, replace)
	}
	if backends.KindOf(err) == backends.Changed {
		// The answer to an earlier request may have been lost.
		if h, herr := u.b.head(ctx, u.key); herr == nil && h.Get(oss.HTTPHeaderOssMetaPrefix+markName) == u.mark {
			return described(u.key, h), nil
		}
	}
	return obj, err
}

// compareFirst is what can be done in a bucket with versioning: of two writers at the
// same moment both may succeed.
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
	if !ok || !b.conditional {
		return nil
	}
	for token := ""; ; {
		page, err := b.page(ctx, claims, token)
		if err != nil {
			return b.explain("sweep", prefix, err)
		}
		for _, entry := range page.Objects {
			if !backends.IsClaim(entry.Key) || !over(backends.Remains{Key: entry.Key, Size: entry.Size, Touched: entry.LastModified, Marked: true}) {
				continue
			}
			if err := b.Delete(ctx, entry.Key); err != nil {
				return err
			}
		}
		if !page.IsTruncated || page.NextContinuationToken == token {
			return nil
		}
		token = page.NextContinuationToken
	}
}
