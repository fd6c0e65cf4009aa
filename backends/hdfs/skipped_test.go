package hdfs

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
)

// A symbolic link, which the library does not follow, was left out of listings in silence.
func TestListingNamesASymbolicLink(t *testing.T) {
	var got []backends.Skipped
	l := &lister{ctx: backends.WithSkipped(context.Background(), func(s backends.Skipped) { got = append(got, s) }), prefix: "data/"}
	const link = 3 // in Hadoop's protocol
	for key, want := range map[string]bool{"data/file": true, "data/link": false, "other/link": false} {
		st := new(hdfs.FileStatus)
		kind := st.GetFileType()
		if kind = isFile; !want {
			kind = link
		}
		st.FileType = &kind
		if l.wanted(key, st) != want {
			t.Errorf("%s: wanted is %t, want %t", key, !want, want)
		}
	}
	if want := []backends.Skipped{{Key: "data/link", What: "a symbolic link"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Of several empty files that were being written, a warning named the first alone.
func TestListingNamesFilesThatAreBeingWritten(t *testing.T) {
	need(t)
	dir := directory(t)
	s := openLive(t, dir)
	for _, name := range []string{"a", "b"} {
		var file io.Closer
		if err := inner(s).with(t.Context(), "create", "", func(s *session) (err error) {
			if err = s.client.MkdirAll(dir, 0o755); err == nil {
				file, err = s.client.Create(dir + name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
	}
	var got []string
	var said strings.Builder
	inner(s).log = slog.New(slog.NewTextHandler(&said, nil))
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { got = append(got, s.Key+": "+s.What) })
	for obj, err := range s.List(ctx, "") {
		t.Errorf("got %v, %v; want nothing listed", obj, err)
	}
	if want := []string{"a: a file that is being written, and empty so far", "b: a file that is being written, and empty so far"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := strings.Count(said.String(), `level=WARN msg="skipping files that are being written" first=`); n != 1 {
		t.Errorf("got %d warnings, want one:\n%s", n, said.String())
	}
}
