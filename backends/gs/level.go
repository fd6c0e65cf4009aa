package gs

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
	items, dirs, next, err := b.page(ctx, selection{prefix: prefix, delimiter: "/"}, token)
	if err != nil {
		return nil, "", err
	}
	for i := range items {
		obj := items[i].object()
		if !strings.HasSuffix(obj.Key, "/") && !isTemporary(obj.Key) {
			all = append(all, obj)
		}
	}
	for _, dir := range dirs {
		all = append(all, backends.Object{Key: dir})
	}
	return all, next, nil
}

// Directories implements backends.PageLister.
func (b *bucket) Directories(ctx context.Context, prefix, after string) (dirs []string, more bool, err error) {
	_, dirs, next, err := b.page(ctx, selection{prefix: prefix, delimiter: "/", from: after}, "")
	if err != nil {
		return nil, false, b.explain("list", prefix, err)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir <= after }), next != "", nil
}
