package s3

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// "stager ls" of a directory requested every key below it, of which there may be millions.
func TestListLevelRequestsOneLevel(t *testing.T) {
	keys := []string{"a.txt", "z.txt"}
	for i := range 1000 {
		keys = append(keys, fmt.Sprintf("d%d/%04d", i%3, i))
	}
	for _, tt := range []struct{ page, requests int }{{1000, 1}, {2, 3}} {
		var requests atomic.Int64
		b := openAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			walker{keys, tt.page}.ServeHTTP(w, r)
		})), "")
		var got []string
		before := requests.Load()
		for obj, err := range b.ListLevel(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, obj.Key)
		}
		if want := []string{"a.txt", "d0/", "d1/", "d2/", "z.txt"}; !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %q, want %q", tt.page, got, want)
		}
		if n := int(requests.Load() - before); n != tt.requests {
			t.Errorf("pages of %d: got %d requests, want %d", tt.page, n, tt.requests)
		}
	}
}

// A level that a server lists out of order across two pages fails, and names the remedy. The next
// listing of the same store is in order.
func TestListLevelOutOfOrderAcrossPages(t *testing.T) {
	b := openAt(t, newServer(t, walker{[]string{"a/1", "a.txt", "b"}, 1}), "")
	list := func() (got []string, err error) {
		for obj, err := range b.ListLevel(t.Context(), "") {
			if err != nil {
				return got, err
			}
			got = append(got, obj.Key)
		}
		return got, nil
	}
	if got, err := list(); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("got %q, %v; want kind unsupported", got, err)
	}
	got, err := list()
	if want := []string{"a.txt", "a/", "b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("again: got %q, %v; want %q", got, err, want)
	}
}
