package s3

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// List requests page after page, each after the previous one was consumed. Servers that walk a tree
// of directories, such as SeaweedFS, list "a/b" before "a.txt". A page in such an order switches to
// listing directory by directory, each one sorted.
func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return b.ListAfter(ctx, prefix, "")
}

// ListAfter implements backends.PageLister. A server that does not list in byte order cannot begin behind
// a key.
func (b *bucket) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		l := &lister{b: b, ctx: ctx, prefix: prefix, after: after, yield: yield}
		var err error
		directories := b.byDirs.Load()
		if !directories {
			directories, err = l.flat()
		}
		if directories && err == nil && after != "" {
			err = backends.Errorf(backends.Unsupported, "list", prefix, "the server lists keys out of order, so a listing cannot begin behind %q", after)
		} else if directories && err == nil {
			l.again = l.seen
			err = l.dir(prefix)
			if err == nil && !l.stopped && l.again != 0 {
				err = l.unordered("")
			}
		}
		if err == nil && !l.stopped {
			l.markers.End(ctx)
		}
		if err != nil && !l.stopped {
			yield(backends.Object{}, b.explain("list", prefix, err))
		}
	}
}

// lister is a listing in progress.
type lister struct {
	b      *bucket
	ctx    context.Context //nolint:containedctx // it is that of the list
	prefix string
	after  string // the listing begins behind this key
	yield  func(backends.Object, error) bool

	last    string // the last key yielded
	seen    int    // number of keys yielded
	again   int    // how many of them have not been listed again yet
	stopped bool   // the consumer stopped
	markers objectstore.Markers
}

// flat lists all keys page by page. If a page is out of order it returns early with directories
// true: the rest must be listed directory by directory.
func (l *lister) flat() (directories bool, err error) {
	err = l.pages(l.prefix, "", l.after, func(p page) (more bool, err error) {
		if !ordered(p.objects) {
			if !p.more && l.seen == 0 && l.after == "" { // this is the complete listing
				slices.SortFunc(p.objects, byKey)
			} else {
				directories = true
				l.b.byDirs.Store(true)
				l.b.log.Info("server lists keys out of order, listing directory by directory", "bucket", l.b.name)
				return false, nil
			}
		}
		for _, obj := range p.objects {
			if obj.Key <= l.last {
				l.b.byDirs.Store(true) // for the next listing
				return false, l.unordered(obj.Key)
			}
			if !l.take(obj) {
				return false, nil
			}
		}
		return true, nil
	})
	return directories, err
}

// dir lists one directory and, recursively, its subdirectories. It holds the names of a directory
// in memory, because no server states that they are sorted.
func (l *lister) dir(prefix string) error {
	var entries []backends.Object
	err := l.pages(prefix, "/", "", func(p page) (bool, error) {
		entries = append(entries, p.objects...)
		for _, key := range p.prefixes {
			if len(key) <= len(prefix) || !strings.HasPrefix(key, prefix) || !strings.HasSuffix(key, "/") {
				return false, backends.Errorf(backends.Unsupported, "list", prefix, "the server lists %q as a directory of %q", key, prefix)
			}
			entries = append(entries, backends.Object{Key: key, Size: dirMarkerSize})
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, byKey)
	for i, obj := range entries {
		switch {
		case i > 0 && obj.Key == entries[i-1].Key && obj.Size == entries[i-1].Size:
			continue // a directory that spans two pages
		case obj.Size == dirMarkerSize:
			if err := l.dir(obj.Key); err != nil {
				return err
			}
		case strings.HasSuffix(obj.Key, "/"):
			l.take(obj)
		case l.again > 0 && obj.Key <= l.last:
			l.again--
		case obj.Key <= l.last:
			return l.unordered(obj.Key)
		case l.again > 0: // a key yielded before is missing now
			return l.unordered(obj.Key)
		default:
			l.take(obj)
		}
		if l.stopped {
			return nil
		}
	}
	return nil
}

// dirMarkerSize is the size of an entry for a directory.
const dirMarkerSize = -1

// pages requests the pages of a listing, which begins behind after, until each returns false.
func (l *lister) pages(prefix, delimiter, after string, each func(page) (more bool, err error)) error {
	token := ""
	for {
		p, err := l.b.requests.list(l.ctx, selection{prefix, delimiter, after}, token)
		if err != nil {
			return err
		}
		l.b.exists.Store(true)
		p.objects = slices.DeleteFunc(p.objects, func(obj backends.Object) bool { return backends.IsClaim(obj.Key) })
		if more, err := each(p); err != nil || !more || !p.more {
			return err
		}
		if p.next == "" || p.next == token {
			return backends.Errorf(backends.Unsupported, "list", prefix, "the list is truncated but has no continuation token")
		}
		token, after = p.next, ""
		if delimiter == "" && !backends.NextPage(l.ctx) {
			l.stopped = true
			return nil
		}
	}
}

// take yields an object and reports whether to continue. It skips keys that end in "/": they are
// directory markers of graphical tools or gateways, whatever their size. Those of s3proxy have
// 4,096 bytes.
func (l *lister) take(obj backends.Object) bool {
	marker := strings.HasSuffix(obj.Key, "/")
	if marker {
		l.markers.Add(obj.Key)
	}
	l.markers.Next(l.ctx, obj.Key)
	if marker {
		if obj.Size > markerSize {
			l.b.log.Warn("skipping a key that ends in /, not a file", "bucket", l.b.name, "key", obj.Key, "size", obj.Size)
		}
		return true
	}
	l.last = obj.Key
	l.seen++
	l.stopped = !l.yield(obj, nil)
	return !l.stopped
}

// markerSize is the maximum size of a directory marker that is skipped without a warning.
const markerSize = 4096

// unordered returns the error of a listing whose order broke after keys had been yielded.
func (l *lister) unordered(key string) error {
	return backends.Errorf(backends.Unsupported, "list", l.prefix,
		"the server lists keys out of order (%q after %q), so missing keys cannot be detected: set ?list=directories to list directory by directory", key, l.last)
}

func ordered(objects []backends.Object) bool { return slices.IsSortedFunc(objects, byKey) }

func byKey(a, b backends.Object) int { return cmp.Compare(a.Key, b.Key) }
