package http

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// tree are objects whose names are a trial for index pages.
var tree = map[string]int64{
	"data/a.bin": 0, "data/a/b": 70_000, "data/a-b.tar": 3, "data/big.bin": 5<<20 + 3, "data/x y+z&a=b;c,d?e#f%g.bin": 11,
	"data/ü/ö.tar": 12, "data/train:1.tar": 13, "data/..hidden": 14, "data/a\\b": 15, "other": 5,
}

// below are the keys of tree relative to data, in order.
func below() (names []string) {
	for key := range tree {
		if name, ok := strings.CutPrefix(key, "data/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestReadingHalfOfContract(t *testing.T) {
	for name, change := range map[string]func(*way){
		"nothing is missing":   func(*way) {},
		"index in JSON":        func(w *way) { w.JSON = true },
		"no ranges":            func(w *way) { w.NoRanges = true },
		"no ETag":              func(w *way) { w.NoETag = true },
		"no ranges or version": func(w *way) { w.NoRanges, w.NoETag, w.NoDate = true, true, true },
		"no HEAD":              func(w *way) { w.NoHead = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, tree)
			f.set(change)
			store := f.open(t, "/data/", backends.Options{})
			objects := listing(t, store, "")
			if got, want := keys(objects), below(); !slices.Equal(got, want) {
				t.Fatalf("the listing has %q, want %q", got, want)
			}
			conformance.Inspect(t, func(t *testing.T) *backends.Store { return f.open(t, "/data/", backends.Options{}) }, objects)
			for _, obj := range objects {
				if obj.Whole != strings.HasPrefix(name, "no ranges") {
					t.Errorf("%q: Whole is %t", obj.Key, obj.Whole)
				}
				wantReads(t, store, obj, "data/"+obj.Key)
			}
		})
	}
}

// wantReads reports an object that does not hold the contents of seed.
func wantReads(t *testing.T, store *backends.Store, obj backends.Object, seed string) {
	t.Helper()
	got := make(memory, obj.Size)
	if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, got, nil); err != nil {
		t.Errorf("reading %q: %v", obj.Key, err)
	} else if want := conformance.ContentsOf(seed, obj.Size).Bytes(); !bytes.Equal(got, want) {
		t.Errorf("reading %q: other bytes than were stored", obj.Key)
	}
}

func TestChangedObjectIsRejected(t *testing.T) {
	for name, change := range map[string]func(*way){
		"ETag": func(*way) {}, "date": func(w *way) { w.NoETag = true }, "size": func(w *way) { w.NoETag, w.NoDate = true, true },
		"ETag without ranges": func(w *way) { w.NoRanges = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, map[string]int64{"k": 1000})
			f.set(change)
			store := f.open(t, "/", backends.Options{})
			old, err := store.Stat(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			f.put("k", make([]byte, 1001))
			for _, off := range []int64{0, 500} {
				if _, err := store.ReadRange(t.Context(), old, off, 100, make(memory, 1000), nil); backends.KindOf(err) != backends.Changed {
					t.Errorf("reading the old version at %d: got %v, want kind changed", off, err)
				}
			}
		})
	}
}

func TestReadsSurviveWhatGoesWrong(t *testing.T) {
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			http.Error(w, "<html>no</html>", code)
		}
	}
	cut := func(n int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1-300005"`)
			w.Header().Set("Content-Length", "3145733")
			w.Write(conformance.ContentsOf("k", int64(n)).Bytes()) //nolint:errcheck // the client may have left
			panic(http.ErrAbortHandler)
		}
	}
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request){
		"500": status(500), "502": status(502), "503": status(503), "429": status(429), "408": status(408),
		"reset": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"cut":   cut(1_000_001), "cut at once": cut(0),
		"a page of a proxy": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<html><body>Please log in</body></html>")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size = 3<<20 + 5
			f := start(t, map[string]int64{"k": size})
			store := f.open(t, "/", backends.Options{})
			obj, err := store.Stat(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				f.fail(func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodGet {
						fault(w, r)
					}
					return r.Method == http.MethodGet
				})
			}
			wantReads(t, store, obj, "k")
		})
	}
}

func TestBadResponsesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter)
		kind   backends.Kind
		words  string
	}{
		{"a web page", func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html") }, backends.Invalid, "a web page (text/html) with status 200"},
		{"compressed", func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "gzip") }, backends.Unsupported, "Content-Encoding: gzip"},
		{"no length", func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, backends.Unsupported, "does not report the size"},
		{"401", func(w http.ResponseWriter) { w.WriteHeader(401) }, backends.Permission, "demands credentials"},
		{"403", func(w http.ResponseWriter) { w.WriteHeader(403) }, backends.Permission, "denies access"},
		{"410", func(w http.ResponseWriter) { w.WriteHeader(410) }, backends.NotExist, "no such object"},
		{"400", func(w http.ResponseWriter) { w.WriteHeader(400) }, backends.Invalid, "HTTP 400"},
		{"a loop", func(w http.ResponseWriter) { w.Header().Set("Location", "/k"); w.WriteHeader(302) }, backends.Unsupported, "redirects more than 10 times"},
		{"no location", func(w http.ResponseWriter) { w.WriteHeader(302) }, backends.Unsupported, "invalid location"},
		{"another protocol", func(w http.ResponseWriter) { w.Header().Set("Location", "ftp://server/k"); w.WriteHeader(302) }, backends.Unsupported, "something other than HTTP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := start(t, nil)
			for range 12 {
				f.fail(func(w http.ResponseWriter, _ *http.Request) bool { tt.answer(w); return true })
			}
			_, err := f.open(t, "/", backends.Options{}).Stat(t.Context(), "k")
			if backends.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("stat: got %v (kind %s), want kind %s and %q", err, backends.KindOf(err), tt.kind, tt.words)
			}
		})
	}
}

func TestNamesDecideAboutPagesAndCodings(t *testing.T) {
	f := start(t, nil)
	store := f.open(t, "/", backends.Options{})
	for key, h := range map[string][2]string{"a.html": {"Content-Type", "text/html"}, "a.tar.gz": {"Content-Encoding", "x-gzip"}} {
		f.fail(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set(h[0], h[1])
			w.Header().Set("Content-Length", "7")
			return true
		})
		if obj, err := store.Stat(t.Context(), key); err != nil || obj.Size != 7 {
			t.Errorf("stat of %s = %+v, %v; want 7 bytes", key, obj, err)
		}
	}
}

func TestHostileIndexIsNotFollowed(t *testing.T) {
	f := start(t, map[string]int64{"data/good.tar": 5, "data/sub/x": 5, "secret": 5})
	const page = `<title>Index of /data/</title><a href="?C=N;O=D">Name</a><a href="/secret">s</a><a href="../secret">s</a><a href="http://127.0.0.1:1/data/x">x</a>
		<a href="//evil/data/x">x</a><a href="%2e%2e/">up</a><a href="..%2fsecret">s</a><a href="good.tar">g</a><a href="good.tar">again</a><a href="sub/">s</a>
		<a href="sub/x">deep</a><a href="nul%00">n</a><a href="javascript:alert(1)">j</a><a href="./">here</a><a href="good.tar?raw=1">r</a><a href="%zz">z</a><a>none</a>`
	f.fail(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, page)
		return true
	})
	var skipped []string
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { skipped = append(skipped, s.Key) })
	var got []string
	for obj, err := range f.open(t, "/data/", backends.Options{}).List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, obj.Key)
	}
	if want := []string{"good.tar", "sub/x"}; !slices.Equal(got, want) {
		t.Errorf("the listing has %q, want %q", got, want)
	}
	if want := []string{"..", "../secret", "nul\x00"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped are %q, want %q", skipped, want)
	}
}

func TestListingSkipsWhatVanishes(t *testing.T) {
	f := start(t, map[string]int64{"a": 1, "b": 2, "c": 3})
	f.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/b" {
			return false
		}
		http.NotFound(w, r)
		return true
	})
	var skipped []backends.Skipped
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { skipped = append(skipped, s) })
	n := 0
	for _, err := range f.open(t, "/", backends.Options{}).List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2 || len(skipped) != 1 || skipped[0].Key != "b" || !skipped[0].Vanished {
		t.Errorf("%d objects, skipped %+v; want 2, and b as vanished", n, skipped)
	}
}

func TestPageThatIsNoIndexIsRefused(t *testing.T) {
	f := start(t, nil)
	f.fail(func(w http.ResponseWriter, _ *http.Request) bool {
		fmt.Fprint(w, `<html><title>Welcome</title><a href="about/">About</a></html>`)
		return true
	})
	for _, err := range f.open(t, "/", backends.Options{}).List(t.Context(), "") {
		if backends.KindOf(err) != backends.Unsupported || !strings.Contains(err.Error(), "?manifest=") {
			t.Errorf("listing: got %v, want kind unsupported and what to do", err)
		}
	}
}

func TestRedirectToAnotherHostCarriesNoCredentials(t *testing.T) {
	got := make(chan http.Header, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.Header().Set("Content-Length", "5")
	}))
	defer other.Close()
	f := start(t, nil)
	f.set(func(w *way) { w.Login = "Bearer hunter2" })
	f.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer hunter2" {
			t.Errorf("the request has %q, want the token", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, other.URL+"/k?X-Amz-Signature=abc def", http.StatusFound)
		return true
	})
	obj, err := f.open(t, "/", backends.Options{Secrets: secrets(t, map[string]string{"token": "hunter2\n"})}).Stat(t.Context(), "k")
	if err != nil || obj.Size != 5 {
		t.Fatalf("stat = %+v, %v; want 5 bytes", obj, err)
	}
	if carried := (<-got).Get("Authorization"); carried != "" {
		t.Errorf("the redirect carries %q", carried)
	}
}

// secrets makes a directory of files.
func secrets(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCredentialsAreFoundAndRenewed(t *testing.T) {
	netrc := filepath.Join(secrets(t, map[string]string{"n": "# mine\nmachine other login x password y\nmachine 127.0.0.1\n  login me password p1\nmachine 127.0.0.1 login you password p2\nmacdef init\n cd /\n\ndefault login d password e"}), "n")
	environment := func(name string) string { return map[string]string{"NETRC": netrc}[name] }
	for _, tt := range []struct {
		name, path, want string
		opts             backends.Options
	}{
		{"netrc", "", basic("me", "p1"), backends.Options{Getenv: environment}},
		{"netrc of the Secret", "", basic("u", "w"), backends.Options{Getenv: environment, Secrets: secrets(t, map[string]string{"netrc": "default login u password w"})}},
		{"user and password", "", basic("u", "w"), backends.Options{Getenv: environment, Secrets: secrets(t, map[string]string{"username": "u", "password": "w\n"})}},
		{"token", "", "Bearer t", backends.Options{Secrets: secrets(t, map[string]string{"token": "t\n"})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := start(t, map[string]int64{"k": 5})
			f.set(func(w *way) { w.Login = tt.want })
			if _, err := f.open(t, "/", tt.opts).Stat(t.Context(), "k"); err != nil {
				t.Errorf("stat: %v", err)
			}
		})
	}
	t.Run("user of the URL", func(t *testing.T) {
		f := start(t, map[string]int64{"k": 5})
		f.set(func(w *way) { w.Login = basic("you", "p2") })
		store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), strings.Replace(f.URL, "://", "://you@", 1)+"/", backends.Options{Getenv: environment})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if _, err := store.Stat(t.Context(), "k"); err != nil {
			t.Errorf("stat: %v", err)
		}
	})
	t.Run("renewed", func(t *testing.T) {
		f := start(t, map[string]int64{"k": 5})
		f.set(func(w *way) { w.Login = "Bearer new" })
		dir := secrets(t, map[string]string{"token": "old"})
		store := f.open(t, "/", backends.Options{Secrets: dir})
		_, err := store.Stat(t.Context(), "k")
		if backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), "rejects the credentials") || strings.Contains(err.Error(), "old") {
			t.Errorf("with an old token: got %v, want kind permission", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Stat(t.Context(), "k"); err != nil {
			t.Errorf("with a new token: %v", err)
		}
	})
}

// Two requests were refused while the token was renewed. The second found that the file had not
// changed since the first had read it, and ended the run.
func TestRenewedCredentialsReachEveryRequest(t *testing.T) {
	dir := secrets(t, map[string]string{"token": "old"})
	raw, _ := start(t, nil).open(t, "/", backends.Options{Secrets: dir}).Backend()
	s := raw.(*site)
	refused := func(token string) error {
		req := httptest.NewRequest(http.MethodGet, s.root.String(), nil)
		req.Header.Set("Authorization", "Bearer "+token)
		return objectstore.Refusal(&http.Response{StatusCode: http.StatusUnauthorized, Request: req, Body: http.NoBody})
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		token string
		again bool
	}{{"old", true}, {"old", true}, {"new", false}} {
		var e *backends.Error
		if err := s.explain("read", "k", s.root, refused(tt.token)); !errors.As(err, &e) || e.Kind != backends.Permission || e.Again != tt.again {
			t.Errorf("refusal %d, of the %s token: got %+v, want kind permission, repeated: %t", i+1, tt.token, err, tt.again)
		}
	}
}

func TestWritesAreRefused(t *testing.T) {
	f := start(t, nil)
	store := f.open(t, "/", backends.Options{})
	if _, err := store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{}); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("put: got %v, want kind unsupported", err)
	}
	if err := store.Delete(t.Context(), "k"); backends.KindOf(err) != backends.Unsupported {
		t.Errorf("delete: got %v, want kind unsupported", err)
	}
	if len(f.requests()) > 0 {
		t.Errorf("the server had %d requests, want none", len(f.requests()))
	}
}
