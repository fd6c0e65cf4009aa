package s3

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// matcher responds like AWS to writes with If-Match, and records the requests.
type matcher struct {
	mu       sync.Mutex
	requests []string
	etag     string // "" if the key is missing
	mark     string
	conflict bool // respond once with a conflict
}

func (m *matcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	match, query := r.Header.Get("If-Match"), r.URL.Query()
	whole := r.Method == http.MethodPut && !query.Has("uploadId") || r.Method == http.MethodPost && query.Has("uploadId")
	note := r.Method
	if match != "" {
		note += " If-Match " + match
	}
	m.requests = append(m.requests, note)
	_, _ = io.Copy(io.Discard, r.Body) // the client sees if it fails
	switch {
	case whole && m.conflict:
		m.conflict = false
		refuse(http.StatusConflict, "ConditionalRequestConflict")(w, r)
	case whole && match != "" && m.etag == "":
		refuse(http.StatusNotFound, "NoSuchKey")(w, r)
	case whole && match != "" && match != m.etag:
		refuse(http.StatusPreconditionFailed, "PreconditionFailed")(w, r)
	case whole && r.Method == http.MethodPut:
		m.etag, m.mark = `"new"`, r.Header.Get("X-Amz-Meta-Stager-Write")
		w.Header().Set("ETag", m.etag)
	case whole:
		m.etag = `"new"`
		fmt.Fprint(w, `<CompleteMultipartUploadResult><ETag>"new"</ETag></CompleteMultipartUploadResult>`)
	case r.Method == http.MethodPost:
		fmt.Fprint(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", `"part"`)
	case r.Method == http.MethodHead && m.etag == "":
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodHead:
		w.Header().Set("ETag", m.etag)
		w.Header().Set("X-Amz-Meta-Stager-Write", m.mark)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// On AWS one request compares and replaces; writes without IfVersion are unchanged.
func TestConditionalReplaceOnAWS(t *testing.T) {
	for _, tt := range []struct {
		name  string
		size  int
		m     *matcher
		opts  backends.CreateOptions
		kind  backends.Kind
		fails bool
		want  []string
	}{
		{"no condition", 10, &matcher{etag: `"old"`}, backends.CreateOptions{}, 0, false, []string{"PUT"}},
		{"right version", 10, &matcher{etag: `"old"`}, backends.CreateOptions{IfVersion: "old"}, 0, false, []string{`PUT If-Match "old"`}},
		{"old version", 10, &matcher{etag: `"other"`}, backends.CreateOptions{IfVersion: "old"}, backends.Changed, true, []string{`PUT If-Match "old"`, "HEAD"}},
		{"missing", 10, &matcher{}, backends.CreateOptions{IfVersion: "old"}, backends.Changed, true, []string{`PUT If-Match "old"`, "HEAD"}},
		{
			"a conflict", 10, &matcher{etag: `"old"`, conflict: true},
			backends.CreateOptions{IfVersion: "old"},
			0, false,
			[]string{`PUT If-Match "old"`, "HEAD", `PUT If-Match "old"`},
		},
		{
			"parts, right version", partSize + 1, &matcher{etag: `"old"`},
			backends.CreateOptions{IfVersion: "old"},
			0, false,
			[]string{"POST", "PUT", "PUT", `POST If-Match "old"`},
		},
		{
			"parts, old version", partSize + 1, &matcher{etag: `"other"`},
			backends.CreateOptions{IfVersion: "old"},
			backends.Changed, true,
			[]string{"POST", "PUT", "PUT", `POST If-Match "old"`, "HEAD", "DELETE"},
		},
		{"parts, no condition", partSize + 1, &matcher{etag: `"old"`}, backends.CreateOptions{}, 0, false, []string{"POST", "PUT", "PUT", "POST"}},
	} {
		b := openFake(t, tt.m.ServeHTTP)
		b.matches, b.decidesParts = true, true
		b.exists.Store(true)
		store := backends.NewStore(b, "s3://b", backends.Options{})
		if got := store.Capabilities().Guard; got != backends.GuardServer {
			t.Errorf("%s: Guard = %q, want %q", tt.name, got, backends.GuardServer)
		}
		tt.m.mu.Lock()
		tt.m.requests = nil // those of opening
		tt.m.mu.Unlock()
		_, err := store.PutBytes(t.Context(), "k", make([]byte, tt.size), tt.opts)
		if (err != nil) != tt.fails || err != nil && backends.KindOf(err) != tt.kind {
			t.Errorf("%s: got %v (kind %v), want kind %v", tt.name, err, backends.KindOf(err), tt.kind)
		}
		if !slices.Equal(tt.m.requests, tt.want) {
			t.Errorf("%s: requests %q, want %q", tt.name, tt.m.requests, tt.want)
		}
	}
}
