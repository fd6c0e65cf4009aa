package trial

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// storeLosses are the rows about entries of stores that are no objects, and about listings under
// which an object vanishes.
var storeLosses = []loss{
	{
		name: "an index has a directory without files and a name with a slash", args: []string{"prefetch", "WEB/src/", "DIR/to"},
		setup: func(q *quiet) {
			q.web(map[string]string{"/src/": index("a", "empty/", "b%2fc"), "/src/a": "x", "/src/empty/": index()})
		},
		log: []string{`no content and is not copied.* key=empty/ .*directory without files`, `no content and is not copied.* key=b/c .*slash in its name`, `complete files=1`}, code: 0,
	},
	{
		name: "an object of an index vanishes under the listing", args: []string{"prefetch", "WEB/src/", "DIR/to"},
		setup: func(q *quiet) { q.web(map[string]string{"/src/": index("a", "gone"), "/src/a": "x"}) },
		log:   []string{`gone: it was removed during the listing; run the command again`}, code: 75,
	},
	{
		name: "a directory of an index vanishes under the listing", args: []string{"prefetch", "WEB/src/", "DIR/to"},
		setup: func(q *quiet) { q.web(map[string]string{"/src/": index("a", "gone/"), "/src/a": "x"}) },
		log:   []string{`gone/: it was removed during the listing`}, code: 75,
	},
	{
		name: "a repository has a submodule and links that lead nowhere", args: []string{"prefetch", "GIT", "DIR/to"}, setup: (*quiet).repository,
		log: []string{`no content and is not copied.* key=module .*submodule`, `no content and is not copied.* key=nowhere .*a link that leads nowhere`, `no content and is not copied.* key=out .*points outside the repository`, `complete files=1`}, code: 0,
	},
	{
		name: "a bucket has a directory marker without files", args: []string{"prefetch", "s3://trial/src/", "DIR/to"},
		setup: func(q *quiet) {
			q.bucket(map[string]string{"src/": "", "src/a": "x", "src/empty/": "", "src/empty/deep/": "", "src/full/": "", "src/full/b": "x"})
		},
		log: []string{`no content and is not copied.* key=empty/deep/ .*directory without files`, `complete files=2`}, code: 0,
	},
	{
		name: "a bucket has an object with content whose key ends in a slash", args: []string{"prefetch", "s3://trial/src/", "DIR/to"},
		setup: func(q *quiet) { q.bucket(map[string]string{"src/a": "x", "src/b/": strings.Repeat("x", 5000)}) },
		log:   []string{`level=WARN .*skipping a key that ends in /, not a file.* key=src/b/ .*size=5000`}, code: 0,
	},
	{
		name: "a bucket has nothing but directory markers", args: []string{"prefetch", "s3://trial/src/", "DIR/to"},
		setup: func(q *quiet) { q.bucket(map[string]string{"src/": "", "src/empty/": ""}) },
		log:   []string{`key=empty/ .*directory without files`, `stager: list s3://trial/src`}, code: 66,
	},
}

// index is a page as Apache writes it.
func index(names ...string) string {
	page := "<html><title>Index of /src</title><h1>Index of /src</h1>"
	for _, name := range names {
		page += fmt.Sprintf("<a href=%q>x</a>", name)
	}
	return page
}

// began is the time of everything that these servers serve.
var began = time.Now().Add(-time.Hour)

// web serves pages and objects by their paths.
func (q *quiet) web(pages map[string]string) {
	q.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/") {
			w.Header().Set("Content-Type", "text/html")
		}
		http.ServeContent(w, r, "", began, strings.NewReader(body))
	}))
	q.t.Cleanup(server.Close)
	q.urls = append(q.urls, "WEB", server.URL)
}

// bucket serves objects as an S3 server does that lists directory markers.
func (q *quiet) bucket(objects map[string]string) {
	q.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.URL.Path, "/trial/")
		body, ok := objects[key]
		switch query := r.URL.Query(); {
		case query.Has("versioning"):
			fmt.Fprint(w, `<VersioningConfiguration/>`)
		case query.Get("list-type") == "2":
			_ = xml.NewEncoder(w).Encode(listed(objects, query.Get("prefix"))) // the client has gone
		case !ok:
			http.NotFound(w, r)
		default:
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, "", began, strings.NewReader(body))
		}
	}))
	q.t.Cleanup(server.Close)
	q.env = []string{"AWS_ENDPOINT_URL_S3=" + server.URL, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=us-east-1"}
}

// listing is a page of a list.
type listing struct {
	XMLName  xml.Name `xml:"ListBucketResult"`
	Contents []listedObject
}

type listedObject struct {
	Key, LastModified, ETag string
	Size                    int
}

func listed(objects map[string]string, prefix string) (page listing) {
	for key, body := range objects {
		if strings.HasPrefix(key, prefix) {
			page.Contents = append(page.Contents, listedObject{key, began.UTC().Format(time.RFC3339), `"1"`, len(body)})
		}
	}
	slices.SortFunc(page.Contents, func(a, b listedObject) int { return cmp.Compare(a.Key, b.Key) })
	return page
}

// repository serves a repository of Git with one file and entries that are none.
func (q *quiet) repository() {
	q.t.Helper()
	server, err := servers.StartGit(q.t.Context(), servers.GitOptions{TLS: true})
	live.Require(q.t, "git", err)
	q.t.Cleanup(func() { server.Close() })
	script := `set -e
git init -q -b main "$1" && cd "$1"
git config user.name a && git config user.email a@example.com && git config uploadpack.allowFilter true
echo x >a && ln -s missing nowhere && ln -s ../../x out
git add . && git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,module
git commit -qm x`
	if out, err := exec.Command("sh", "-c", script, "sh", server.Dir+"/r.git").CombinedOutput(); err != nil {
		q.t.Fatalf("%v: %s", err, out)
	}
	q.urls = append(q.urls, "GIT", server.URL("r.git")+"@main?ca-bundle="+server.CA)
}
