package s3

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// walker lists like a server that walks a tree of directories, such as SeaweedFS: "a/b" comes
// before "a.txt", although "." sorts before "/".
type walker struct {
	keys []string
	page int // entries per page
}

// inOrder returns the keys sorted by the names in each directory.
func (s walker) inOrder() []string {
	return slices.SortedFunc(slices.Values(s.keys), func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
}

func (s walker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var all []string // entries
	for _, key := range s.inOrder() {
		rest, below := strings.CutPrefix(key, q.Get("prefix"))
		if !below {
			continue
		}
		if directory, _, found := strings.Cut(rest, "/"); found && q.Get("delimiter") == "/" {
			key = q.Get("prefix") + directory + "/"
		}
		if len(all) == 0 || all[len(all)-1] != key {
			all = append(all, key)
		}
	}
	from, _ := strconv.Atoi(q.Get("continuation-token"))
	to := min(from+s.page, len(all))
	fmt.Fprint(w, "<ListBucketResult><EncodingType>url</EncodingType>")
	for _, key := range all[from:to] {
		if q.Get("delimiter") == "/" && strings.HasSuffix(key, "/") && key != q.Get("prefix") {
			fmt.Fprintf(w, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", url.QueryEscape(key))
		} else {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>4096</Size></Contents>", url.QueryEscape(key))
		}
	}
	if to < len(all) {
		fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", to)
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func collect(b *bucket, t *testing.T, prefix string) (keys []string, err error) {
	for obj, err := range b.List(t.Context(), prefix) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, obj.Key)
	}
	return keys, nil
}

// SeaweedFS lists "a/b" before "a.txt", and the whole source was rejected.
func TestListOfAServerThatWalksDirectories(t *testing.T) {
	few := []string{"a.txt", "a/1", "a/2", "a/b c/3", "a/b c.txt", "a0", "z/1"}
	for _, tt := range []struct {
		name   string
		server walker
		params string
	}{
		{"in one page", walker{few, 1000}, ""},
		{"out of order in the first page", walker{few, 4}, ""},
		{"out of order in a later page", walker{[]string{"a/1", "a/2", "b/1", "b.txt", "c"}, 2}, ""},
		{"directory by directory, by wish", walker{few, 1}, "&list=directories"},
	} {
		b := openAt(t, newServer(t, tt.server), tt.params)
		for range 2 {
			got, err := collect(b, t, "")
			want := slices.Sorted(slices.Values(tt.server.keys))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: got %q, %v; want %q", tt.name, got, err, want)
			}
		}
		got, err := collect(b, t, "a/")
		want := slices.DeleteFunc(slices.Sorted(slices.Values(tt.server.keys)), func(key string) bool { return !strings.HasPrefix(key, "a/") })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s, below a/: got %q, %v; want %q", tt.name, got, err, want)
		}
	}
}

// If a key appears too late, after later keys were yielded, the listing fails and names the remedy;
// it must not be incomplete. The next listing of the same store is in order.
func TestListOutOfOrderAcrossPages(t *testing.T) {
	for _, keys := range [][]string{
		{"a/1", "a/2", "a/3", "a.txt"},
		{"a/1", "a/2", "a/b/1", "a/b.txt", "a.txt"}, // the second page does not show it
	} {
		b := openAt(t, newServer(t, walker{keys, 2}), "")
		got, err := collect(b, t, "")
		if backends.KindOf(err) != backends.Unsupported || !strings.Contains(fmt.Sprint(err), "?list=directories") {
			t.Errorf("%q: got %q, %v; want kind unsupported and what helps", keys, got, err)
		}
		got, err = collect(b, t, "")
		if want := slices.Sorted(slices.Values(keys)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, again: got %q, %v; want %q", keys, got, err, want)
		}
	}
}

// The directory markers of s3proxy have 4,096 bytes, and a prefetch of pushed data failed with 78.
func TestListSkipsKeysThatEndInASlash(t *testing.T) {
	b := openAt(t, newServer(t, walker{[]string{"a/", "a/1", "b/", "c"}, 2}), "")
	got, err := collect(b, t, "")
	if want := []string{"a/1", "c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// A server that lists a directory as its own parent must not cause an endless loop.
func TestListOfADirectoryThatIsItsOwnParent(t *testing.T) {
	b := openAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<ListBucketResult><CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes></ListBucketResult>", cmp.Or(r.URL.Query().Get("prefix"), "a/"))
	})), "&list=directories")
	if got, err := collect(b, t, ""); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("got %q, %v; want kind unsupported", got, err)
	}
}
