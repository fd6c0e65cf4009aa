package e2e

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/hub"
)

// badSource is a source over HTTP that is not as its user believes, and what prefetch makes of it.
type badSource struct {
	name  string
	serve http.HandlerFunc // nil: webFiles
	hub   func(*hub.Hub)   // not nil: the source is a repository of this Hub
	url   string           // SERVER is that of the server, OTHER that of another host
	token string           // in the Secret
	code  int
	says  string   // a pattern of the only sentence
	files []string // in DST afterwards
}

// webFiles are the files of the web server of the table.
var webFiles = map[string]string{"/p/a.bin": strings.Repeat("a", 3<<20), "/p/b.bin": "b"}

// serveFile serves a file, with ranges.
func serveFile(w http.ResponseWriter, r *http.Request) {
	text, ok := webFiles[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, len(text)))
	http.ServeContent(w, r, "file.bin", time.Time{}, strings.NewReader(text))
}

// answer serves the same response to everything.
func answer(status int, header, value, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(header, value)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the client sees if it fails
	}
}

// demands serves files to requests with this token.
func demands(token string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		serveFile(w, r)
	}
}

const signedManifest = `{"url": "SERVER/p/b.bin?X-Amz-Signature=hunter2", "size": 1}`

var badSources = []badSource{
	{name: "a wrong path", url: "SERVER/p/none.bin", code: 66, says: `there is no object here$|no such object`},
	{name: "no server", url: "http://127.0.0.1:1/p/a.bin", code: 69, says: `connection refused`},
	{name: "a page at status 200", serve: answer(200, "Content-Type", "text/html", "<html>Please log in</html>"), url: "SERVER/p/a.bin", code: 78, says: `a web page \(text/html\) with status 200`},
	{name: "a page that is no index", serve: answer(200, "Content-Type", "text/html", "<html><title>Welcome</title></html>"), url: "SERVER/p/", code: 78, says: `\?manifest=`},
	{name: "no size", serve: func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, url: "SERVER/p/a.bin", code: 78, says: `does not report the size`},
	{name: "a server without ranges", serve: func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(webFiles["/p/a.bin"])))
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(webFiles["/p/a.bin"])) // the client sees if it fails
		}
	}, url: "SERVER/p/a.bin", files: []string{"a.bin"}},
	{name: "another length than announced", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Length", map[string]string{http.MethodHead: "10", http.MethodGet: "5"}[r.Method])
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte("12345")) // the client sees if it fails
		}
	}, url: "SERVER/p/a.bin", code: 75, says: `the object has 5 bytes, not 10 as listed; run the command again`},
	{name: "an index with hostile names", serve: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/p/" {
			serveFile(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<title>Index of /p/</title><a href="../secret">s</a><a href="..%2fsecret">s</a><a href="//OTHER/x">x</a><a href="b.bin">b</a><a href="nul%00">n</a>`)
	}, url: "SERVER/p/", files: []string{"b.bin"}},
	{name: "no credentials", serve: demands("hunter2"), url: "SERVER/p/b.bin", code: 77, says: `the server demands credentials`},
	{name: "wrong credentials", serve: demands("hunter2"), token: "hunter2-wrong", url: "SERVER/p/b.bin", code: 77, says: `the server rejects the credentials`},
	{name: "a redirect to another host", serve: func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.Header.Get("X-Other")+r.URL.Path, http.StatusFound)
	}, token: "hunter2", url: "SERVER/p/b.bin", files: []string{"b.bin"}},
	{
		name: "an expired signature", serve: answer(403, "Content-Type", "application/xml", "<Error><Code>AccessDenied</Code></Error>"),
		url: "SERVER/p/?manifest=MANIFEST", code: 77, says: `rejects the query of this URL \(HTTP 403\), which may have expired: renew the manifest`,
	},

	{name: "hf: no such repository, or private", hub: func(*hub.Hub) {}, url: "hf://org/other/", code: 77, says: `org/other does not exist, or is private and needs the HF_TOKEN`},
	{name: "hf: no such repository", hub: func(*hub.Hub) {}, token: hub.Token, url: "hf://org/other/", code: 66, says: `org/other does not exist`},
	{name: "hf: no such revision", hub: func(*hub.Hub) {}, url: "hf://org/name@v9/", code: 66, says: `org/name has no revision "v9"`},
	{name: "hf: no such path", hub: func(*hub.Hub) {}, url: "hf://org/name/none/", code: 66, says: `there is no object here$`},
	{name: "hf: gated, no token", hub: func(h *hub.Hub) { h.Gated = true }, url: "hf://org/name/", code: 77, says: `org/name is gated: request access at SERVER/org/name, and set HF_TOKEN`},
	{name: "hf: gated, a wrong token", hub: func(h *hub.Hub) { h.Gated = true }, token: "hunter2-wrong", url: "hf://org/name/", code: 77, says: `the Hub rejects the token`},
	{name: "hf: another checksum than listed", hub: func(h *hub.Hub) { h.Corrupt = true }, url: "hf://org/name/b.bin", code: 76, says: `b\.bin`},
}

// Each mistake with a source, and each fault of its server, is one sentence with its exit code. No
// file is left behind but those that are whole, and no secret is printed.
func TestBadSourcesOverHTTP(t *testing.T) {
	t.Parallel()
	for _, bad := range badSources {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			bad.run(t)
		})
	}
}

func (bad badSource) run(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("the other host got credentials: %q", got)
		}
		serveFile(w, r)
	}))
	t.Cleanup(other.Close)
	var server string
	if bad.hub != nil {
		h := hub.Start(t, map[string]int64{"a.bin": 3 << 20, "b.bin": 1})
		h.Set(func() { bad.hub(h) })
		server = h.URL
	} else {
		serve := bad.serve
		if serve == nil {
			serve = serveFile
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("X-Other", other.URL)
			serve(w, r)
		}))
		t.Cleanup(s.Close)
		server = s.URL
	}
	manifest := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(manifest, []byte(strings.ReplaceAll(signedManifest, "SERVER", server)), 0o600); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("SERVER", server, "MANIFEST", "file://"+manifest)
	secret, dst := t.TempDir(), filepath.Join(t.TempDir(), "dst")
	writeToken(t, secret, bad.token)
	out := runPrefetch(t, bad.code, fill.Replace(bad.url), secret, dst, server)
	sentences := regexp.MustCompile(`(?m)^stager: .*$`).FindAllString(out, -1)
	if bad.code == 0 && len(sentences) > 0 || bad.code != 0 && len(sentences) != 1 {
		t.Errorf("%d sentences, want one if it fails:\n%s", len(sentences), out)
	}
	if bad.says != "" && !regexp.MustCompile(fill.Replace(bad.says)).MatchString(strings.Join(sentences, "\n")) {
		t.Errorf("got %q, want %q", sentences, bad.says)
	}
	if strings.Contains(out, "hunter2") {
		t.Errorf("a secret is printed:\n%s", out)
	}
	if got := visible(t, dst); !slices.Equal(got, bad.files) {
		t.Errorf("left are %q, want %q", got, bad.files)
	}
}

// writeToken writes a token into a directory of secrets, under the names for both schemes.
func writeToken(t *testing.T, secret, token string) {
	t.Helper()
	for _, name := range []string{"token", "HF_TOKEN"} {
		if token == "" {
			return
		}
		if err := os.WriteFile(filepath.Join(secret, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// runPrefetch runs prefetch with these secrets, which must end with code.
func runPrefetch(t *testing.T, code int, source, secret, dst, hub string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), world.stager, "prefetch", source, dst, "--secrets", secret)
	cmd.Env = append(os.Environ(), "HF_ENDPOINT="+hub, "HF_TOKEN=", "HOME="+secret, "STAGER_LOG_LEVEL=debug")
	if code == 69 { // it would be retried for long
		cmd.Env = append(cmd.Env, "STAGER_RETRY_FOR=1s")
	}
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("prefetch ended with %d (%v), want %d:\n%s", got, err, code, out)
	}
	return string(out)
}

// visible are the files below a directory, without those that stager keeps there about itself.
func visible(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), "."):
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A token expires while several requests are under way. All of them go on with the one that is in
// the file by then, also those that were refused after another one had read it.
func TestTokenExpiresInMidRun(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "hf"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			secret, dst := t.TempDir(), filepath.Join(t.TempDir(), "dst")
			writeToken(t, secret, "hunter2-old")
			sizes, names := map[string]int64{}, []string{}
			for i := range 6 {
				names = append(names, fmt.Sprintf("%d.bin", i))
				sizes[names[i]] = 9
			}
			behind, err := url.Parse(hub.Start(t, sizes).URL)
			if err != nil {
				t.Fatal(err)
			}
			files := httputil.NewSingleHostReverseProxy(behind)
			var (
				mu      sync.Mutex
				valid   = "hunter2-old"
				waiting int
				full    = make(chan struct{}) // closed once two requests with the old token have arrived
			)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".bin") && waiting < 2 {
					if waiting++; waiting == 2 {
						valid = "hunter2-new"
						writeToken(t, secret, valid)
						close(full)
					}
					mu.Unlock()
					<-full
					mu.Lock()
				}
				ok := r.Header.Get("Authorization") == "Bearer "+valid
				mu.Unlock()
				if !ok {
					http.Error(w, "the token has expired", http.StatusUnauthorized)
					return
				}
				r.Header.Set("Authorization", "Bearer "+hub.Token)
				files.ServeHTTP(w, r)
			}))
			t.Cleanup(s.Close)
			source := "hf://org/name/"
			if scheme == "http" {
				source = s.URL + "/org/name/resolve/main/{0..5}.bin"
			}
			out := runPrefetch(t, 0, source, secret, dst, s.URL)
			if got := visible(t, dst); !slices.Equal(got, names) {
				t.Errorf("left are %q, want %q", got, names)
			}
			if strings.Contains(out, "hunter2") {
				t.Errorf("a token is printed:\n%s", out)
			}
		})
	}
}
