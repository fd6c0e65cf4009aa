package objectstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

func TestLevelMergesPages(t *testing.T) {
	reset := errors.New("connection reset")
	for _, c := range []struct{ pages, want, fails string }{
		{"", "", ""},
		{"b a/", "a/ b", ""},
		{"a/ b|c", "a/ b c", ""},
		{"a a/|a/ b", "a a/ b", ""}, // a directory that spans two pages
		{"a/ a/", "a/", ""},         // a directory that is also an object
		{"a|a", "a", "out of order"},
		{"b|a", "b", "out of order"},
		{"a/|!|b", "a/", "connection reset"},
	} {
		pages, asked := strings.Split(c.pages, "|"), 0
		page := func(token string) (all []backends.Object, next string, err error) {
			if want := map[bool]string{true: "more"}[asked > 0]; token != want {
				t.Errorf("%s: page %d has the token %q, want %q", c.pages, asked, token, want)
			}
			asked++
			if pages[asked-1] == "!" {
				return nil, "", reset
			}
			for key := range strings.FieldsSeq(pages[asked-1]) {
				all = append(all, backends.Object{Key: key})
			}
			return all, map[bool]string{true: "more"}[asked < len(pages)], nil
		}
		var got []string
		var fails string
		for obj, err := range objectstore.Level("", page, func(err error) error { return err }) {
			if err != nil {
				fails = err.Error()
				break
			}
			got = append(got, obj.Key)
		}
		if keys := strings.Join(got, " "); keys != c.want || (c.fails == "") != (fails == "") || !strings.Contains(fails, c.fails) {
			t.Errorf("%s: got %q and the error %q, want %q and %q", c.pages, keys, fails, c.want, c.fails)
		}
	}
}
