package objectstore

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestMarkersNameDirectoriesWithoutFiles(t *testing.T) {
	for _, c := range []struct {
		keys, want string // keys that end in "/" are markers; those that end in "@" are of a directory without a slash
	}{
		{"a/ a/b c", ""},
		{"a/ b", "a/"},
		{"a/", "a/"},
		{"a/ a/b/ c", "a/b/"},
		{"a/ a/b/ a/c", "a/b/"},
		{"a@ a-b a/c", ""},
		{"a@ a-b b", "a/"},
		{"a@ a-b", "a/"},
		{"x/ y/ z", "x/ y/"},
	} {
		var got []string
		ctx := backends.WithSkipped(context.Background(), func(s backends.Skipped) { got = append(got, s.Key) })
		var m Markers
		for _, key := range strings.Fields(c.keys) {
			dir, noSlash := strings.CutSuffix(key, "@")
			if noSlash || strings.HasSuffix(key, "/") {
				m.Add(strings.TrimSuffix(dir, "/") + "/")
			}
			m.Next(ctx, dir)
		}
		m.End(ctx)
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", c.keys, got, want)
		}
	}
}
