package hf

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// partSize is large enough that the overhead of a request becomes negligible.
const partSize = 16 << 20

// repo is one commit of a repository. Keys are paths in it.
type repo struct {
	place
	base        *url.URL // of the Hub, with a trailing "/"
	commit      string
	fetcher     *objectstore.Fetcher
	credentials *credentials

	mu        sync.Mutex // guards the fields below
	locations map[string]location
	paused    time.Time // no request is sent before
}

var (
	_ backends.Backend = (*repo)(nil)
	_ backends.Hub     = (*repo)(nil)
)

// Commit implements backends.Hub.
func (r *repo) Commit() backends.HubCommit {
	return backends.HubCommit{Kind: r.kind, Repo: r.repo, Revision: r.revision, SHA: r.commit}
}

// Capabilities implements backends.Backend. A commit never changes.
func (r *repo) Capabilities() backends.Capabilities {
	return backends.Capabilities{PinnedReads: true, Parallelism: 8, MaxParallelism: 32, Hedged: true, PartSize: partSize, Checksum: backends.SHA256}
}

// Close closes the idle connections.
func (r *repo) Close() error {
	r.fetcher.CloseIdleConnections()
	return nil
}

// Create fails: repositories are only read.
func (r *repo) Create(_ context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	return nil, backends.Errorf(backends.Unsupported, "create", key, "hf URLs can only be read")
}

// Delete fails: repositories are only read.
func (r *repo) Delete(_ context.Context, key string) error {
	return backends.Errorf(backends.Unsupported, "delete", key, "hf URLs can only be read")
}

// api returns a URL of the Hub's API for the repository.
func (r *repo) api(parts ...string) *url.URL {
	return r.base.JoinPath(append([]string{"api", r.kind, r.repo}, escaped(parts)...)...)
}

// file returns the URL of a file.
func (r *repo) file(key string) *url.URL {
	parts := []string{r.repo, "resolve", r.commit}
	if r.kind != "models" {
		parts = append([]string{r.kind}, parts...)
	}
	return r.base.JoinPath(append(parts, escaped(strings.Split(key, "/"))...)...)
}

func escaped(parts []string) []string {
	out := make([]string, len(parts))
	for i, part := range parts {
		out[i] = url.PathEscape(part)
	}
	return out
}

// ask sends a request to the Hub, unless it demanded a pause.
func (r *repo) ask(ctx context.Context, method string, at *url.URL, header http.Header) (*http.Response, error) {
	if err := r.ready(); err != nil {
		return nil, err
	}
	header.Set("Accept-Encoding", "identity")
	if word := r.authorization(at); word != "" {
		header.Set("Authorization", word)
	}
	return r.fetcher.Send(ctx, method, at, header)
}

// authorization returns the Authorization header for a URL; "" if there is none. Other hosts get no token.
func (r *repo) authorization(at *url.URL) string {
	token := r.credentials.get()
	if token == "" || !objectstore.SameHost(at, r.base) {
		return ""
	}
	return "Bearer " + token
}

// answerLimit is the maximum size of a response of the API in bytes.
const answerLimit = 64 << 20

// call requests JSON of the API and returns the header of the response.
func (r *repo) call(ctx context.Context, at *url.URL, out any) (http.Header, error) {
	for range 5 {
		res, err := r.ask(ctx, http.MethodGet, at, make(http.Header))
		if err != nil {
			return nil, err
		}
		next, err := objectstore.Redirect(res, at)
		switch {
		case err != nil:
			objectstore.Discard(res)
			return nil, err
		case next != nil: // a repository that was renamed
			objectstore.Discard(res)
			at = next
			continue
		case res.StatusCode != http.StatusOK:
			return nil, objectstore.Refusal(res)
		}
		defer res.Body.Close() // it was read
		text, err := io.ReadAll(io.LimitReader(res.Body, answerLimit))
		if err != nil {
			return nil, err
		}
		if json.Unmarshal(text, out) != nil {
			return nil, backends.Errorf(backends.Unsupported, "list", "", "%s does not respond as a Hugging Face Hub does: check the endpoint", r.base.Host)
		}
		return res.Header, nil
	}
	return nil, backends.Errorf(backends.Unsupported, "list", "", "the Hub redirects too often")
}

var commitForm = regexp.MustCompile(`^[0-9a-f]{40}$`)

// resolve returns the commit of the revision.
func (r *repo) resolve(ctx context.Context) (string, error) {
	var out struct{ SHA string }
	if _, err := r.call(ctx, r.api("revision", r.revision), &out); err != nil {
		return "", r.explain("open", "", err)
	}
	if !commitForm.MatchString(out.SHA) {
		return "", backends.Errorf(backends.Unsupported, "open", "", "%s does not respond as a Hugging Face Hub does: check the endpoint", r.base.Host)
	}
	return out.SHA, nil
}

// item is an entry of a tree.
type item struct {
	Type, OID, Path string
	Size            int64
	LFS             *struct {
		OID  string
		Size int64
	}
}

// object returns the object of an item.
func (i item) object() backends.Object {
	if i.LFS != nil {
		return described(i.Path, i.LFS.Size, i.LFS.OID)
	}
	return described(i.Path, i.Size, i.OID)
}

// described returns an object by the hash that the Hub reports: a SHA-256 of large files, the SHA-1
// of a Git blob of others.
func described(key string, size int64, hash string) backends.Object {
	obj := backends.Object{Key: key, Size: size, Version: backends.Version(hash)}
	if sum, err := backends.ParseChecksum(string(backends.SHA256) + ":" + hash); err == nil {
		obj.Sum = sum
	}
	return obj
}

// List requests all pages of the tree below the directory of prefix, and sorts them: the Hub lists
// directories first.
func (r *repo) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return r.list(ctx, prefix, true)
}

// ListLevel implements backends.LevelLister. It requests the pages of one directory.
func (r *repo) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return r.list(ctx, prefix, false)
}

func (r *repo) list(ctx context.Context, prefix string, recursive bool) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		objects, err := r.tree(ctx, prefix, recursive)
		if err != nil {
			if err = r.explain("list", prefix, err); backends.KindOf(err) != backends.NotExist {
				yield(backends.Object{}, err)
			}
			return
		}
		for _, obj := range objects {
			if !yield(obj, nil) {
				return
			}
		}
	}
}

func (r *repo) tree(ctx context.Context, prefix string, recursive bool) (objects []backends.Object, err error) {
	dir := strings.Trim(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
	parts := []string{"tree", r.commit}
	if dir != "" {
		parts = append(parts, strings.Split(dir, "/")...)
	}
	at := r.api(parts...)
	if recursive {
		at.RawQuery = "recursive=true"
	}
	for at != nil {
		var page []item
		header, err := r.call(ctx, at, &page)
		if err != nil {
			return nil, err
		}
		backends.Moved(ctx)
		for _, i := range page {
			switch {
			case !strings.HasPrefix(i.Path, prefix) || i.Type == "directory" && recursive:
			case i.Type == "directory":
				objects = append(objects, backends.Object{Key: i.Path + "/"})
			case i.Type == "file":
				objects = append(objects, i.object())
			default:
				backends.Skip(ctx, backends.Skipped{Key: i.Path, What: "neither a file nor a directory"})
			}
		}
		next := nextPage(header, at)
		if next != nil && (next.String() == at.String() || !objectstore.SameHost(next, r.base)) {
			return nil, backends.Errorf(backends.Unsupported, "list", prefix, "the Hub's link to the next page leads nowhere")
		}
		at = next
	}
	slices.SortFunc(objects, func(a, b backends.Object) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(objects, func(a, b backends.Object) bool { return a.Key == b.Key }), nil
}

// nextPage returns the URL with rel="next" in the Link headers; nil if there is none.
func nextPage(header http.Header, at *url.URL) *url.URL {
	for _, link := range strings.Split(strings.Join(header.Values("Link"), ","), ",") {
		to, rel, _ := strings.Cut(strings.TrimSpace(link), ";")
		if !strings.Contains(strings.ReplaceAll(rel, " ", ""), `rel="next"`) || !strings.HasPrefix(to, "<") {
			continue
		}
		if next, err := at.Parse(strings.Trim(to, "<>")); err == nil {
			return next
		}
	}
	return nil
}

// Stat implements backends.Source.
func (r *repo) Stat(ctx context.Context, key string) (backends.Object, error) {
	if !objectstore.Passable(key) {
		return backends.Object{}, backends.Errorf(backends.NotExist, "stat", key, "%w", backends.ErrNothing)
	}
	obj, err := r.stat(ctx, key)
	if err != nil {
		return backends.Object{}, r.explain("stat", key, err)
	}
	return obj, nil
}

func (r *repo) stat(ctx context.Context, key string) (backends.Object, error) {
	res, _, err := r.atHub(ctx, http.MethodHead, key, make(http.Header))
	if err != nil {
		return backends.Object{}, err
	}
	defer res.Body.Close() // it has none
	hash, size := hashIn(res.Header), res.Header.Get("X-Linked-Size")
	if size == "" {
		size = res.Header.Get("Content-Length")
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 || hash == "" {
		return backends.Object{}, backends.Errorf(backends.Unsupported, "stat", key, "the Hub reports no size or no hash of the file")
	}
	return described(key, n, hash), nil
}
