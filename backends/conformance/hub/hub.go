// Package hub is a fake of the Hugging Face Hub, which the real huggingface_hub takes for one.
package hub

import (
	"bytes"
	"crypto/sha1" // as Git does
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance"
)

// Commit is that of all revisions, and Token is accepted.
const (
	Commit  = "0123456789abcdef0123456789abcdef01234567"
	Token   = "hf_hunter2"
	perPage = 3 // files on a page of a listing
)

// Hub is a fake of the Hugging Face Hub with one repository per kind, org/name, and a server of large
// files on another host, whose locations are signed and valid for some uses.
type Hub struct {
	*httptest.Server

	files *httptest.Server

	mu      sync.Mutex // guards the fields below
	Sizes   map[string]int64
	Texts   map[string]string // contents of files that are not generated
	Gated   bool
	Uses    int // of a signature; 0: any number
	Faults  []func(http.ResponseWriter, *http.Request) bool
	Corrupt bool           // small files have other bytes than their hashes
	used    map[string]int // by signature
	seen    []*http.Request
}

// large is the size from which files are in LFS.
const large = 1 << 20

// Start starts a Hub with files of generated contents, which ends with the test.
func Start(t testing.TB, sizes map[string]int64) *Hub {
	h := &Hub{Sizes: sizes, Texts: make(map[string]string), used: make(map[string]int)}
	h.files = httptest.NewServer(http.HandlerFunc(h.serveLocation))
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.files.Close)
	t.Cleanup(h.Close)
	return h
}

// Set changes the fields while no request is served.
func (h *Hub) Set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// Requests returns the requests so far, except those for locations.
func (h *Hub) Requests() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", code)
	http.Error(w, `{"error":"`+code+`"}`, status)
}

// Add adds a file with these contents.
func (h *Hub) Add(key, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Texts[key], h.Sizes[key] = text, int64(len(text))
}

func (h *Hub) contents(key string) []byte {
	if text, ok := h.Texts[key]; ok {
		return []byte(text)
	}
	return conformance.ContentsOf(key, h.Sizes[key]).Bytes()
}

// hash returns the hash of a file as the Hub has it: SHA-256 of large files, that of the Git blob of
// others.
func (h *Hub) hash(key string) string {
	contents := h.contents(key)
	if len(contents) >= large {
		sum := sha256.Sum256(contents)
		return hex.EncodeToString(sum[:])
	}
	s := sha1.New()
	fmt.Fprintf(s, "blob %d\x00", len(contents))
	s.Write(contents)
	return hex.EncodeToString(s.Sum(nil))
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, r)
	for i, fault := range h.Faults {
		if fault(w, r) {
			h.Faults = slices.Delete(h.Faults, i, i+1)
			return
		}
	}
	p := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	api := strings.HasPrefix(p, "api/")
	p = strings.TrimPrefix(p, "api/")
	for _, kind := range []string{"models/", "datasets/", "spaces/"} {
		p = strings.TrimPrefix(p, kind)
	}
	parts := strings.Split(p, "/")
	switch {
	case len(parts) < 2 || parts[0] != "org" || parts[1] != "name":
		if r.Header.Get("Authorization") == "" {
			refuse(w, http.StatusUnauthorized, "RepoNotFound")
			return
		}
		refuse(w, http.StatusNotFound, "RepoNotFound")
		return
	case r.Header.Get("Authorization") != "" && r.Header.Get("Authorization") != "Bearer "+Token:
		http.Error(w, "Invalid credentials in Authorization header", http.StatusUnauthorized)
		return
	case h.Gated && r.Header.Get("Authorization") == "" && !(api && len(parts) > 2 && parts[2] == "revision"):
		refuse(w, http.StatusUnauthorized, "GatedRepo")
		return
	}
	what, revision := "revision", "main"
	if len(parts) > 3 {
		what = parts[2]
		revision, _ = url.PathUnescape(parts[3])
	}
	if !slices.Contains([]string{"main", "v1.0", "refs/pr/1", Commit}, revision) {
		refuse(w, http.StatusNotFound, "RevisionNotFound")
		return
	}
	rest, _ := url.PathUnescape(strings.Join(parts[min(len(parts), 4):], "/"))
	w.Header().Set("X-Repo-Commit", Commit)
	switch {
	case api && what == "revision":
		var siblings []map[string]string
		for key := range h.Sizes {
			siblings = append(siblings, map[string]string{"rfilename": key})
		}
		json.NewEncoder(w).Encode(map[string]any{"id": "org/name", "modelId": "org/name", "sha": Commit, "siblings": siblings, "private": false, "tags": []string{}, "downloads": 0, "likes": 0}) //nolint:errcheck // the client may have left
	case api && what == "tree":
		h.tree(w, r, rest)
	case !api && what == "resolve":
		h.resolve(w, r, rest)
	default:
		http.NotFound(w, r)
	}
}

// tree lists one page, directories first, as the Hub does.
func (h *Hub) tree(w http.ResponseWriter, r *http.Request, dir string) {
	var items []map[string]any
	directories := make(map[string]bool)
	for key, size := range h.Sizes {
		if dir != "" && !strings.HasPrefix(key, dir+"/") {
			continue
		}
		if parent := path.Dir(key); parent != "." && parent != dir {
			directories[parent] = true
		}
		one := map[string]any{"type": "file", "path": key, "size": size, "oid": strings.Repeat("1", 40)}
		if size >= large {
			one["lfs"] = map[string]any{"oid": h.hash(key), "size": size, "pointerSize": 130}
		} else {
			one["oid"] = h.hash(key)
		}
		items = append(items, one)
	}
	if len(items) == 0 && dir != "" {
		refuse(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	for directory := range directories {
		items = append(items, map[string]any{"type": "directory", "path": directory, "size": 0, "oid": strings.Repeat("0", 40)})
	}
	slices.SortFunc(items, func(a, b map[string]any) int {
		if c := strings.Compare(a["type"].(string), b["type"].(string)); c != 0 {
			return c
		}
		return strings.Compare(b["path"].(string), a["path"].(string)) // not the order of the keys
	})
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	to := min(from+perPage, len(items))
	if to < len(items) {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.Itoa(to))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", `<http://`+r.Host+next.RequestURI()+`>; rel="next"`)
	}
	json.NewEncoder(w).Encode(items[from:to]) //nolint:errcheck // the client may have left
}

// resolve serves a small file, or redirects to the location of a large one.
func (h *Hub) resolve(w http.ResponseWriter, r *http.Request, key string) {
	size, ok := h.Sizes[key]
	if !ok {
		refuse(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	if size < large {
		w.Header().Set("ETag", `"`+h.hash(key)+`"`)
		contents := h.contents(key)
		if h.Corrupt && size > 0 {
			contents[0]++
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(contents))
		return
	}
	w.Header().Set("X-Linked-Size", strconv.FormatInt(size, 10))
	w.Header().Set("X-Linked-Etag", `"`+h.hash(key)+`"`)
	w.Header().Set("Location", h.files.URL+"/"+url.PathEscape(key)+"?Signature="+strconv.Itoa(len(h.seen)))
	w.WriteHeader(http.StatusFound)
}

// serveLocation serves a large file as long as its signature is valid.
func (h *Hub) serveLocation(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	key := strings.TrimPrefix(r.URL.Path, "/")
	signature := r.URL.Query().Get("Signature")
	h.used[signature]++
	valid := signature != "" && (h.Uses == 0 || h.used[signature] <= h.Uses)
	contents := h.contents(key)
	h.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "":
		http.Error(w, "a token came along", http.StatusBadRequest)
	case !valid:
		http.Error(w, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", http.StatusForbidden)
	default:
		w.Header().Set("ETag", `"another"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(contents))
	}
}
