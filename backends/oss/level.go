package oss

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// ListLevel implements backends.LevelLister by the delimiter "/".
func (b *bucket) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		last, token := "", ""
		for {
			page, next, err := b.level(ctx, prefix, token)
			if err != nil {
				yield(backends.Object{}, b.explain("list", prefix, err))
				return
			}
			for _, obj := range page {
				if obj.Key <= last {
					yield(backends.Object{}, backends.Errorf(backends.Unsupported, "list", prefix,
						"the server lists keys out of order (%q after %q), so missing keys cannot be detected", obj.Key, last))
					return
				}
				if last = obj.Key; !yield(obj, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// level requests one page, and returns its objects and directories in the order of their keys.
func (b *bucket) level(ctx context.Context, prefix, token string) (all []backends.Object, next string, err error) {
	page, err := b.page(ctx, prefix, "/", token)
	if err != nil {
		return nil, "", err
	}
	for i := range page.Objects {
		entry := &page.Objects[i]
		if !strings.HasSuffix(entry.Key, "/") && !backends.IsClaim(entry.Key) {
			all = append(all, backends.Object{Key: entry.Key, Size: entry.Size, ModTime: entry.LastModified, Version: version(entry.ETag)})
		}
	}
	for _, dir := range page.CommonPrefixes {
		all = append(all, backends.Object{Key: dir})
	}
	slices.SortFunc(all, func(a, b backends.Object) int { return strings.Compare(a.Key, b.Key) })
	if !page.IsTruncated {
		return all, "", nil
	}
	if next = page.NextContinuationToken; next == "" || next == token {
		return nil, "", backends.Errorf(backends.Unsupported, "list", prefix, "the list is truncated but has no continuation token")
	}
	return all, next, nil
}
