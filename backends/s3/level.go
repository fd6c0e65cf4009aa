package s3

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
		l := &lister{b: b, ctx: ctx, prefix: prefix, yield: yield}
		if err := l.level(); err != nil && !l.stopped {
			yield(backends.Object{}, b.explain("list", prefix, err))
		}
	}
}

// level yields each page after the previous one was consumed. It holds all names of a server that
// lists out of order in memory.
func (l *lister) level() error {
	var held []backends.Object
	return l.pages(l.prefix, "/", "", func(p page) (more bool, err error) {
		held = append(held, p.objects...)
		for _, key := range p.prefixes {
			held = append(held, backends.Object{Key: key, Size: dirMarkerSize})
		}
		if l.b.byDirs.Load() && p.more {
			return true, nil
		}
		slices.SortFunc(held, byKey)
		for _, obj := range held {
			if obj.Size == dirMarkerSize && obj.Key == l.last {
				continue // a directory that spans two pages
			}
			if obj.Key <= l.last {
				l.b.byDirs.Store(true) // for the next listing
				return false, l.unordered(obj.Key)
			}
			if !l.enter(obj) {
				return false, nil
			}
		}
		held = held[:0]
		return true, nil
	})
}

// enter yields an object or a directory, and reports whether to continue.
func (l *lister) enter(obj backends.Object) bool {
	if obj.Size != dirMarkerSize || !strings.HasSuffix(obj.Key, "/") {
		return l.take(obj)
	}
	l.last = obj.Key
	l.stopped = !l.yield(backends.Object{Key: obj.Key}, nil)
	return !l.stopped
}

// Directories implements backends.PageLister.
func (b *bucket) Directories(ctx context.Context, prefix, after string) (dirs []string, more bool, err error) {
	p, err := b.requests.list(ctx, selection{prefix, "/", after}, "")
	if err != nil {
		return nil, false, b.explain("list", prefix, err)
	}
	return slices.DeleteFunc(p.prefixes, func(dir string) bool { return dir <= after }), p.more, nil
}
