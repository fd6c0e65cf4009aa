package http

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// fake is a web server that follows RFC 9110 to the letter, except in the ways that way says.
type fake struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	way     way
	objects map[string][]byte // by path, without the first "/"
	edition map[string]int    // how often each was written
	faults  []func(http.ResponseWriter, *http.Request) bool
	seen    []*http.Request
}

// way is what a server does in its own way.
type way struct {
	NoRanges, NoETag, NoDate, NoHead bool
	JSON                             bool   // index pages of nginx in JSON
	Login                            string // the Authorization header that is demanded
}

func (f *fake) set(change func(*way)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.way)
}

// requests returns those that the server had.
func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// start starts a server with objects of the sizes given by key.
func start(t *testing.T, sizes map[string]int64) *fake {
	f := &fake{objects: make(map[string][]byte), edition: make(map[string]int)}
	for key, size := range sizes {
		f.put(key, conformance.ContentsOf(key, size).Bytes())
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) put(key string, contents []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[key] = contents
	f.edition[key]++
}

// fail queues a fault for the next request that it answers: those for which it returns true.
func (f *fake) fail(fault func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fault)
}

func (f *fake) failed(w http.ResponseWriter, r *http.Request) bool {
	f.mu.Lock()
	f.seen = append(f.seen, r)
	faults := slices.Clone(f.faults)
	f.mu.Unlock()
	for i, fault := range faults {
		if f.answers(i, fault, w, r) {
			return true
		}
	}
	return false
}

// answers lets a fault answer and removes it if it does, also by a panic.
func (f *fake) answers(i int, fault func(http.ResponseWriter, *http.Request) bool, w http.ResponseWriter, r *http.Request) (done bool) {
	done = true
	defer func() {
		if done {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.faults = slices.Delete(f.faults, i, i+1)
		}
	}()
	done = fault(w, r)
	return done
}

// began is the time of the first edition of all objects.
var began = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.failed(w, r) {
		return
	}
	f.mu.Lock()
	way := f.way
	f.mu.Unlock()
	if way.Login != "" && r.Header.Get("Authorization") != way.Login {
		w.Header().Set("WWW-Authenticate", "Basic")
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodHead && way.NoHead || r.Method != http.MethodHead && r.Method != http.MethodGet {
		http.Error(w, "GET only", http.StatusMethodNotAllowed)
		return
	}
	key := strings.TrimPrefix(r.URL.Path, "/")
	f.mu.Lock()
	contents, ok := f.objects[key]
	edition := f.edition[key]
	f.mu.Unlock()
	if !ok {
		f.serveIndex(w, r, key)
		return
	}
	h := w.Header()
	tag, changed := fmt.Sprintf(`"%d-%x"`, edition, len(contents)), began.Add(time.Duration(edition)*time.Minute).Format(http.TimeFormat)
	if !way.NoETag {
		h.Set("ETag", tag)
	}
	if !way.NoDate {
		h.Set("Last-Modified", changed)
	}
	h.Set("Content-Type", "application/octet-stream")
	if match := r.Header.Get("If-Match"); match != "" && match != tag && !way.NoETag {
		http.Error(w, "changed", http.StatusPreconditionFailed)
		return
	}
	if since := r.Header.Get("If-Unmodified-Since"); since != "" && since != changed && !way.NoDate {
		http.Error(w, "changed", http.StatusPreconditionFailed)
		return
	}
	first, last := int64(0), int64(len(contents))-1
	status := http.StatusOK
	if !way.NoRanges {
		h.Set("Accept-Ranges", "bytes")
	}
	if asked := r.Header.Get("Range"); asked != "" && !way.NoRanges {
		from, to, _ := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-")
		first, _ = strconv.ParseInt(from, 10, 64)
		if first >= int64(len(contents)) {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", len(contents)))
			http.Error(w, "no such bytes", http.StatusRequestedRangeNotSatisfiable)
			return
		}
		if end, err := strconv.ParseInt(to, 10, 64); err == nil {
			last = min(last, end)
		}
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(contents)))
	}
	h.Set("Content-Length", strconv.FormatInt(last-first+1, 10))
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		w.Write(contents[first : last+1]) //nolint:errcheck // the client may have left
	}
}

// serveIndex lists a directory, or says that nothing is there.
func (f *fake) serveIndex(w http.ResponseWriter, r *http.Request, dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for key := range f.objects {
		rest, ok := strings.CutPrefix(key, strings.TrimSuffix(dir, "/")+"/")
		if dir == "" {
			rest, ok = key, true
		}
		if name, _, below := strings.Cut(rest, "/"); ok && below {
			names = append(names, name+"/")
		} else if ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch names = slices.Compact(names); {
	case len(names) == 0:
		http.NotFound(w, r)
	case dir != "" && !strings.HasSuffix(dir, "/"):
		http.Redirect(w, r, "/"+dir+"/", http.StatusMovedPermanently)
	case f.way.JSON:
		w.Header().Set("Content-Type", "application/json")
		var lines []string
		for _, name := range names {
			kind := "file"
			if strings.HasSuffix(name, "/") {
				kind = "directory"
			}
			lines = append(lines, fmt.Sprintf(`{"name":%q,"type":%q,"mtime":"Thu, 26 Nov 2026 00:00:00 GMT","size":1}`, strings.TrimSuffix(name, "/"), kind))
		}
		fmt.Fprintf(w, "[\n%s\n]", strings.Join(lines, ",\n"))
	default:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<html><head><title>Index of /%s</title></head><body><h1>Index of</h1><a href=\"../\">../</a>", dir)
		for _, name := range names {
			fmt.Fprintf(w, "<a href=\"./%s\">%s</a> 1.2K\n", strings.ReplaceAll((&url.URL{Path: name}).EscapedPath(), "&", "&amp;"), "name…")
		}
		io.WriteString(w, "</body></html>") //nolint:errcheck // as above
	}
}

// open opens a URL below the server.
func (f *fake) open(t *testing.T, path string, opts backends.Options) *backends.Store {
	t.Helper()
	store, err := f.try(t, path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func (f *fake) try(t *testing.T, path string, opts backends.Options) (*backends.Store, error) {
	t.Helper()
	if opts.RetryFor == 0 {
		opts.RetryFor = time.Minute
	}
	store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), f.URL+path, opts)
	if err == nil {
		t.Cleanup(func() { store.Close() })
	}
	return store, err
}

// listing returns the objects below prefix.
func listing(t *testing.T, store *backends.Store, prefix string) (objects []backends.Object) {
	t.Helper()
	for obj, err := range store.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, obj)
	}
	return objects
}

// keys returns the keys of objects.
func keys(objects []backends.Object) (keys []string) {
	for _, obj := range objects {
		keys = append(keys, obj.Key)
	}
	return keys
}

// memory is an io.WriterAt.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }
