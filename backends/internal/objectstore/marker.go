package objectstore

import (
	"context"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Markers finds directories without files in a listing in ascending order. Many tools create an
// empty object for a directory. It has no content, and listings omit it: a directory exists with
// its files. One without files is skipped by name, as on a file server.
type Markers struct{ open []string }

// Add adds the marker of a directory, whose name ends in "/". Call it before Next.
func (m *Markers) Add(dir string) { m.open = append(m.open, dir) }

// Next notes the next key of the listing.
func (m *Markers) Next(ctx context.Context, key string) {
	if len(m.open) == 0 {
		return
	}
	m.open = slices.DeleteFunc(m.open, func(dir string) bool {
		if dir > key {
			return false // its files may still come
		}
		if dir != key && !strings.HasPrefix(key, dir) {
			skipEmpty(ctx, dir)
		}
		return dir != key
	})
}

// End ends the listing.
func (m *Markers) End(ctx context.Context) {
	for _, dir := range m.open {
		skipEmpty(ctx, dir)
	}
	m.open = nil
}

func skipEmpty(ctx context.Context, dir string) {
	backends.Skip(ctx, backends.Skipped{Key: dir, What: "a directory without files"})
}
