package oss

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// ListLevel implements backends.LevelLister by the delimiter "/".
func (b *bucket) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return objectstore.Level(prefix,
		func(token string) ([]backends.Object, string, error) { return b.level(ctx, prefix, token) },
		func(err error) error { return b.explain("list", prefix, err) })
}

// level requests one page, and returns its objects and directories.
func (b *bucket) level(ctx context.Context, prefix, token string) (all []backends.Object, next string, err error) {
	page, err := b.page(ctx, selection{prefix: prefix, delimiter: "/"}, token)
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
	if !page.IsTruncated {
		return all, "", nil
	}
	if next = page.NextContinuationToken; next == "" || next == token {
		return nil, "", backends.Errorf(backends.Unsupported, "list", prefix, "the list is truncated but has no continuation token")
	}
	return all, next, nil
}

// Directories implements backends.PageLister.
func (b *bucket) Directories(ctx context.Context, prefix, after string) (dirs []string, more bool, err error) {
	page, err := b.page(ctx, selection{prefix, "/", after}, "")
	if err != nil {
		return nil, false, b.explain("list", prefix, err)
	}
	return slices.DeleteFunc(page.CommonPrefixes, func(dir string) bool { return dir <= after }), page.IsTruncated, nil
}
