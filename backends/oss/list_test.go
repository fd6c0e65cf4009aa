package oss

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// The fake lists correctly; these servers do not.
func TestListRejectsInvalidPages(t *testing.T) {
	page := func(more string, keys ...string) string {
		var text strings.Builder
		for _, k := range keys {
			fmt.Fprintf(&text, "<Contents><Key>%s</Key><Size>1</Size><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>", k)
		}
		return "<ListBucketResult><EncodingType>url</EncodingType>" + text.String() + more + "</ListBucketResult>"
	}
	const truncated, next = "<IsTruncated>true</IsTruncated>", "<NextContinuationToken>again</NextContinuationToken>"
	for _, tt := range []struct {
		name, page string
		keys       int // listed before the error
		kind       backends.Kind
	}{
		{"out of order", page("", "a", "c", "b"), 2, backends.Unsupported},
		{"one twice", page("", "a", "a"), 1, backends.Unsupported},
		{"goes on, but not where", page(truncated, "a"), 1, backends.Unsupported},
		{"goes on at its beginning", page(truncated+next, "a"), 1, backends.Unsupported},
		{"goes on at one place for ever, with nothing", page(truncated + next), 0, backends.Unsupported},
		{"cannot be decoded", page("", "100%"), 0, backends.Unknown},
		{"not XML", "hello", 0, backends.Unavailable}, // it ends before anything begins
		{"of something else", "<Wrong></Wrong>", 0, backends.Unknown},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.page) }))
		defer s.Close()
		b, err := newBucket(backends.Target{Host: "bucket", Params: url.Values{"endpoint": {s.URL}, "anonymous": {"true"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		keys, last := 0, error(nil)
		for _, err := range b.List(t.Context(), "") {
			if last = err; err == nil {
				keys++
			}
		}
		if last == nil || backends.KindOf(last) != tt.kind || keys != tt.keys {
			t.Errorf("%s: %d keys and %v (%v), want %d and kind %v", tt.name, keys, last, backends.KindOf(last), tt.keys, tt.kind)
		}
	}
}
