// Package hub is a fake of the Hugging Face Hub, which the real huggingface_hub takes for one.
package hub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stager-dev/stager/backends/conformance"
)

// Commit is that of all revisions, and Token is accepted.
const (
	Commit = "0123456789abcdef0123456789abcdef01234567"
	Token  = "hf_hunter2"
)

// Hub is a fake of the Hugging Face Hub with one or more repositories, each of every kind, and a
// server of large files on another host, whose locations are signed and valid for some uses.
type Hub struct {
	*httptest.Server

	large *httptest.Server
	page  int  // entries on a page of a listing
	keeps bool // requests are kept

	mu           sync.Mutex             // guards the fields below
	repositories map[string]*repository // of the organization org, by name
	Gated        bool
	Uses         int // of a signature; 0: any number
	Faults       []func(http.ResponseWriter, *http.Request) bool
	Corrupt      bool           // small files have other bytes than their hashes
	used         map[string]int // by signature
	seen         []*http.Request
	signed       int // signatures so far
}

// Start starts a Hub whose repository org/name has files of generated contents, a few on each page
// of a listing. It ends with the test.
func Start(t conformance.TB, sizes map[string]int64) *Hub {
	r := newRepository()
	for key, size := range sizes {
		r.add(key, generated(key, size))
	}
	h := start(&Hub{page: 3, keeps: true, repositories: map[string]*repository{"name": r}})
	t.Cleanup(h.Close)
	return h
}

// Serve starts a Hub of directories, which do not change. Each is a repository org/NAME, by name.
// The caller must call Close. Requests are not kept.
func Serve(directories map[string]string) (*Hub, error) {
	repositories := make(map[string]*repository)
	for name, dir := range directories {
		r := newRepository()
		if err := r.addAll(os.DirFS(dir)); err != nil {
			return nil, err
		}
		repositories[name] = r
	}
	return start(&Hub{page: 1000, repositories: repositories}), nil
}

func start(h *Hub) *Hub {
	h.used = make(map[string]int)
	h.large = httptest.NewServer(http.HandlerFunc(h.serveLarge))
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	return h
}

// Close stops both servers.
func (h *Hub) Close() {
	h.Server.Close()
	h.large.Close()
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

// Add adds a file with these contents to org/name.
func (h *Hub) Add(key, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repositories["name"].add(key, ofText(text))
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", code)
	http.Error(w, `{"error":"`+code+`"}`, status)
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	if f := h.answer(w, r); f != nil {
		f.serve(w, r)
	}
}

// answer answers a request, or returns the small file that is the answer.
func (h *Hub) answer(w http.ResponseWriter, r *http.Request) *file {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keeps {
		h.seen = append(h.seen, r)
	}
	for i, fault := range h.Faults {
		if fault(w, r) {
			h.Faults = slices.Delete(h.Faults, i, i+1)
			return nil
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
	case len(parts) < 2 || parts[0] != "org" || h.repositories[parts[1]] == nil:
		if r.Header.Get("Authorization") == "" {
			refuse(w, http.StatusUnauthorized, "RepoNotFound")
			return nil
		}
		refuse(w, http.StatusNotFound, "RepoNotFound")
		return nil
	case r.Header.Get("Authorization") != "" && r.Header.Get("Authorization") != "Bearer "+Token:
		http.Error(w, "Invalid credentials in Authorization header", http.StatusUnauthorized)
		return nil
	case h.Gated && r.Header.Get("Authorization") == "" && !(api && len(parts) > 2 && parts[2] == "revision"):
		refuse(w, http.StatusUnauthorized, "GatedRepo")
		return nil
	}
	what, revision := "revision", "main"
	if len(parts) > 3 {
		what = parts[2]
		revision, _ = url.PathUnescape(parts[3])
	}
	if !slices.Contains([]string{"main", "v1.0", "refs/pr/1", Commit}, revision) {
		refuse(w, http.StatusNotFound, "RevisionNotFound")
		return nil
	}
	rest, _ := url.PathUnescape(strings.Join(parts[min(len(parts), 4):], "/"))
	w.Header().Set("X-Repo-Commit", Commit)
	switch {
	case api && what == "revision":
		h.revision(w, parts[1])
	case api && what == "tree":
		h.tree(w, r, parts[1], rest)
	case !api && what == "resolve":
		return h.resolve(w, parts[1], rest)
	default:
		http.NotFound(w, r)
	}
	return nil
}

// revision describes a repository, with the names of all files.
func (h *Hub) revision(w http.ResponseWriter, name string) {
	siblings := []map[string]string{}
	for _, e := range h.repositories[name].list("") {
		if e.Type == "file" {
			siblings = append(siblings, map[string]string{"rfilename": e.Path})
		}
	}
	id := "org/" + name
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have left
		"id": id, "modelId": id, "sha": Commit, "siblings": siblings, "private": false, "tags": []string{}, "downloads": 0, "likes": 0,
	})
}

// tree lists one page of what is below a directory.
func (h *Hub) tree(w http.ResponseWriter, r *http.Request, name, dir string) {
	entries := h.repositories[name].list(dir)
	if len(entries) == 0 && dir != "" {
		refuse(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor")) // none: the first page
	to := min(from+h.page, len(entries))
	if to < len(entries) {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.Itoa(to))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", `<http://`+r.Host+next.RequestURI()+`>; rel="next"`)
	}
	_ = json.NewEncoder(w).Encode(entries[from:to]) // the client may have left
}

// resolve returns a small file, or redirects to the location of a large one.
func (h *Hub) resolve(w http.ResponseWriter, name, key string) *file {
	f := h.repositories[name].files[key]
	switch {
	case f == nil:
		refuse(w, http.StatusNotFound, "EntryNotFound")
		return nil
	case !f.isLarge():
		w.Header().Set("ETag", `"`+f.hash+`"`)
		if h.Corrupt {
			f = f.corrupt()
		}
		return f
	}
	h.signed++
	at := url.URL{Path: "/" + name + "/" + key, RawQuery: "Signature=" + strconv.Itoa(h.signed)}
	w.Header().Set("X-Linked-Size", strconv.FormatInt(f.size, 10))
	w.Header().Set("X-Linked-Etag", `"`+f.hash+`"`)
	w.Header().Set("Location", h.large.URL+at.String())
	w.WriteHeader(http.StatusFound)
	return nil
}

// serveLarge serves a large file as long as its signature is valid.
func (h *Hub) serveLarge(w http.ResponseWriter, r *http.Request) {
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	signature := r.URL.Query().Get("Signature")
	h.mu.Lock()
	h.used[signature]++
	valid := signature != "" && (h.Uses == 0 || h.used[signature] <= h.Uses)
	var f *file
	if of := h.repositories[name]; of != nil {
		f = of.files[key]
	}
	h.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "":
		http.Error(w, "a token came along", http.StatusBadRequest)
	case !valid || f == nil:
		http.Error(w, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", http.StatusForbidden)
	default:
		w.Header().Set("ETag", `"another"`)
		f.serve(w, r)
	}
}
