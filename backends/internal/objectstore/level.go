package objectstore

import (
	"iter"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Level lists one level of keys below prefix for [backends.LevelLister]. page requests the page
// with that token, "" for the first one, and returns its objects and directories, and the token of
// the next page, "" after the last one. explain makes an error of page one of the backend.
func Level(prefix string, page func(token string) (all []backends.Object, next string, err error), explain func(error) error) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		last, token := "", ""
		for {
			all, next, err := page(token)
			if err != nil {
				yield(backends.Object{}, explain(err))
				return
			}
			slices.SortFunc(all, func(a, b backends.Object) int { return strings.Compare(a.Key, b.Key) })
			for _, obj := range all {
				if obj.Key == last && strings.HasSuffix(obj.Key, "/") {
					continue // a directory that is also an object, or spans two pages
				}
				if obj.Key <= last {
					yield(backends.Object{}, Unordered(prefix, obj.Key, last))
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

// Unordered returns the error of a server that lists key after last.
func Unordered(prefix, key, last string) error {
	return backends.Errorf(backends.Unsupported, "list", prefix,
		"the server lists keys out of order (%q after %q), so missing keys cannot be detected", key, last)
}
