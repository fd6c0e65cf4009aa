package s3

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// A marker of a directory is skipped without a warning, but not an object with contents whose key looks so.
func TestLargeMarkersAreLogged(t *testing.T) {
	for size, want := range map[int64]int{0: 0, markerSize: 0, markerSize + 1: 1} {
		var said bytes.Buffer
		l := &lister{
			b:     &bucket{name: "here", log: slog.New(slog.NewTextHandler(&said, nil))},
			yield: func(obj backends.Object, _ error) bool { t.Errorf("got %q, want it skipped", obj.Key); return true },
		}
		if !l.take(backends.Object{Key: "a/", Size: size}) {
			t.Errorf("%d bytes: the listing stops, want it to continue", size)
		}
		if got := strings.Count(said.String(), "skipping a key that ends in /, not a file"); got != want {
			t.Errorf("%d bytes: got %d warnings in %q, want %d", size, got, said.String(), want)
		}
	}
}
