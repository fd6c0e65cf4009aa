package git

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// planting are files whose names are a trial for listings.
var planting = map[string]int64{
	"a.bin": 0, "a/b": 70_000, "a-b.tar": 3, "big.bin": 5<<20 + 3, "x y+z&a=b;c,d?e#f%g \"q\".bin": 11, " leading": 4,
	"ü/ö.tar": 12, "train:1.tar": 13, ".hidden": 14, "[a]*": 16, "-la": 17, "a -> b": 18,
}

func below() (names []string) {
	for key := range planting {
		names = append(names, key)
	}
	slices.Sort(names)
	return names
}

// git runs Git in a directory.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=stager", "-c", "user.email=stager@localhost"}, args...)...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out))
}

// plant makes a repository below a directory of the server, and returns its directory.
func plant(t testing.TB, served string, flags ...string) string {
	t.Helper()
	dir := live.Plant(t, served, planting, time.Now())
	git(t, dir, append([]string{"init", "--quiet", "--initial-branch=main"}, flags...)...)
	commitAll(t, dir)
	return dir
}

func commitAll(t testing.TB, dir string) string {
	t.Helper()
	git(t, dir, "add", "--all", "--force", ".")
	git(t, dir, "commit", "--quiet", "--message=all")
	return git(t, dir, "rev-parse", "HEAD")
}

// urlOf returns the URL of a repository, up to its revision, and its parameters.
func urlOf(server *live.Server, dir string) (at, params string) {
	at = "://" + server.Env["GIT_SERVER"] + strings.TrimPrefix(dir, server.Env["GIT_REPOSITORIES"])
	if ca := server.Env["GIT_CA"]; ca != "" {
		return "git+https" + at, "?ca-bundle=" + ca
	}
	return "git+http" + at, ""
}

func tryLive(t testing.TB, server *live.Server, url string, opts backends.Options) (*backends.Store, error) {
	t.Helper()
	if opts.Getenv == nil {
		opts.Getenv = server.Getenv()
	}
	if opts.RetryFor == 0 {
		opts.RetryFor = 20 * time.Second
	}
	store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), url, opts)
	if err == nil {
		t.Cleanup(func() { store.Close() })
	}
	return store, err
}

// openLive opens what follows the repository in a URL.
func openLive(t testing.TB, server *live.Server, dir, rest string) *backends.Store {
	t.Helper()
	at, params := urlOf(server, dir)
	store, err := tryLive(t, server, at+rest+params, backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func listing(t testing.TB, store *backends.Store) (objects []backends.Object, keys []string) {
	t.Helper()
	for obj, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		objects, keys = append(objects, obj), append(keys, obj.Key)
	}
	return objects, keys
}

func read(t testing.TB, store *backends.Store, obj backends.Object) []byte {
	t.Helper()
	got, h := make(memory, obj.Size), backends.SHA256.New()
	sum, err := store.ReadRange(t.Context(), obj, 0, obj.Size, got, h)
	if err != nil {
		t.Errorf("reading %q: %v", obj.Key, err)
	}
	if obj.Size > 0 && sum != backends.SumOf(backends.SHA256, h) {
		t.Errorf("%q has the checksum %v, want that of its bytes", obj.Key, sum)
	}
	return got
}

// memory is an object in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func TestReadingHalfOfContractOnRealServer(t *testing.T) {
	for name, tt := range map[string]struct{ flags, init []string }{
		"in the clear": {nil, nil}, "TLS": {[]string{"-tls"}, nil}, "SHA-256": {nil, []string{"--object-format=sha256"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := live.Start(t, "git", tt.flags...)
			dir := plant(t, server.Env["GIT_REPOSITORIES"], tt.init...)
			for link, target := range map[string]string{"link": "big.bin", "dead": "nowhere", "dir": "a", "ü/up": "..", "out": "../../x", "abs": "/etc/passwd"} {
				if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			commitAll(t, dir)
			store := openLive(t, server, dir, "@main")
			objects, keys := listing(t, store)
			want := append(below(), "dir/b", "link")
			slices.Sort(want)
			if !slices.Equal(keys, want) {
				t.Fatalf("the listing has %q, want %q", keys, want)
			}
			conformance.Inspect(t, func(*testing.T) *backends.Store { return store }, objects)
			for _, obj := range objects {
				if size, plain := planting[obj.Key]; plain && !bytes.Equal(read(t, store, obj), conformance.ContentsOf(obj.Key, size).Bytes()) {
					t.Errorf("reading %q: other bytes than were stored", obj.Key)
				}
			}
		})
	}
}

func TestRevisionsOnRealServer(t *testing.T) {
	server := live.Start(t, "git")
	dir := plant(t, server.Env["GIT_REPOSITORIES"])
	first := git(t, dir, "rev-parse", "HEAD")
	git(t, dir, "tag", "--annotate", "--message=one", "@scope/pkg@1.0")
	git(t, dir, "tag", "both")
	live.PlantFile(t, filepath.Join(dir, "later"), []byte("x"), time.Now())
	second := commitAll(t, dir)
	git(t, dir, "branch", "topic/x")
	git(t, dir, "branch", "both")
	git(t, dir, "update-ref", "refs/pull/1/head", first)
	tagged := git(t, dir, "rev-parse", "@scope/pkg@1.0")
	for revision, later := range map[string]bool{
		"": true, "@HEAD": true, "@main": true, "@topic/x": true, "@" + second: true, "@" + first: false, "@" + tagged: false,
		"@@scope/pkg@1.0": false, "@refs/pull/1/head": false, "@refs/tags/both": false, "@refs/heads/both": true,
	} {
		if _, keys := listing(t, openLive(t, server, dir, revision)); slices.Contains(keys, "later") != later {
			t.Errorf("revision %q: the file of the second commit is there: %t, want %t", revision, !later, later)
		}
	}
	at, _ := urlOf(server, dir)
	for revision, want := range map[string]struct {
		kind  backends.Kind
		words string
	}{
		"both":                             {backends.Invalid, "a branch and a tag named"},
		"nothing":                          {backends.NotExist, `has no branch or tag "nothing"`},
		"pull/1":                           {backends.NotExist, "no branch or tag"},
		first[:10]:                         {backends.NotExist, "write all 40 digits"},
		strings.Repeat("12345", 8):         {backends.NotExist, "not our ref"},
		strings.Repeat("12345678", 8):      {backends.NotExist, "have 40 digits, not 64"},
		git(t, dir, "rev-parse", "HEAD:a"): {backends.NotExist, "is a tree and no commit"},
	} {
		_, err := tryLive(t, server, at+"@"+revision, backends.Options{RetryFor: time.Second})
		if backends.KindOf(err) != want.kind || !strings.Contains(err.Error(), want.words) {
			t.Errorf("revision %s: got %v, want kind %v and %q", revision, err, want.kind, want.words)
		}
	}
}

// A directory of a large repository is fetched alone, if the server can filter.
func TestDirectoriesOnRealServer(t *testing.T) {
	server := live.Start(t, "git")
	for _, filter := range []string{"false", "true"} {
		dir := plant(t, server.Env["GIT_REPOSITORIES"])
		git(t, dir, "config", "uploadpack.allowFilter", filter)
		for link, target := range map[string]string{"a/big": "../big.bin", "a/again": "big", "a/dir": "../ü"} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		commitAll(t, dir)
		if _, keys := listing(t, openLive(t, server, dir, "@main//ü/")); !slices.Equal(keys, []string{"ö.tar"}) {
			t.Errorf("filter %s: the directory ü has %q, want ö.tar", filter, keys)
		}
		store := openLive(t, server, dir, "//a")
		objects, keys := listing(t, store)
		if want := []string{"again", "b", "big", "dir/ö.tar"}; !slices.Equal(keys, want) {
			t.Errorf("filter %s: the directory a has %q, want %q", filter, keys, want)
		}
		for _, obj := range objects {
			if strings.HasSuffix(obj.Key, "big") && !bytes.Equal(read(t, store, obj), conformance.ContentsOf("big.bin", planting["big.bin"]).Bytes()) {
				t.Errorf("filter %s: %s has other bytes than its target", filter, obj.Key)
			}
		}
		if _, obj, err := openLive(t, server, dir, "//big.bin").Self(t.Context()); err != nil || obj.Size != planting["big.bin"] {
			t.Errorf("filter %s: one file: %+v, %v", filter, obj, err)
		}
		if _, keys := listing(t, openLive(t, server, dir, "//nothing/here/")); len(keys) > 0 {
			t.Errorf("filter %s: a missing directory has %q", filter, keys)
		}
		at, _ := urlOf(server, dir)
		_, err := tryLive(t, server, at+"//ü?max-size=1MiB", backends.Options{})
		if whole := filter == "false"; whole != (backends.KindOf(err) == backends.Unsupported) {
			t.Errorf("filter %s: fetching a small directory of a commit that is too large: %v", filter, err)
		}
	}
}

func TestCredentialsOnRealServer(t *testing.T) {
	server := live.Start(t, "git", "-tls")
	dir := plant(t, filepath.Join(server.Env["GIT_REPOSITORIES"], "private"))
	at, params := urlOf(server, dir)
	env := func(user, password string) func(string) string {
		return func(name string) string {
			return map[string]string{"GIT_USERNAME": user, "GIT_PASSWORD": password}[name]
		}
	}
	secrets := t.TempDir()
	live.PlantFile(t, filepath.Join(secrets, "username"), []byte("stager\n"), time.Now())
	live.PlantFile(t, filepath.Join(secrets, "password"), []byte(server.Env["GIT_PASSWORD"]+"\n"), time.Now())
	inURL := strings.Replace(at, "://", "://stager@", 1)
	for name, tt := range map[string]struct {
		url   string
		opts  backends.Options
		words string
	}{
		"environment":      {at, backends.Options{Getenv: server.Getenv()}, ""},
		"files":            {at, backends.Options{Secrets: secrets, Getenv: env("", "")}, ""},
		"user of the URL":  {inURL, backends.Options{Getenv: env("other", server.Env["GIT_PASSWORD"])}, ""},
		"none":             {at, backends.Options{Getenv: env("", "")}, "needs credentials, or does not exist (HTTP 401)"},
		"wrong password":   {at, backends.Options{Getenv: env("stager", "hunter2secret")}, "rejects the user or the password"},
		"user without any": {inURL, backends.Options{Getenv: env("", "")}, "needs credentials"},
		"two lines":        {at, backends.Options{Getenv: env("a\nb", "hunter2secret")}, "more than one line"},
	} {
		tt.opts.RetryFor = time.Second
		_, err := tryLive(t, server, tt.url+params, tt.opts)
		switch {
		case tt.words == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.words != "" && (backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: got %v, want kind permission and %q", name, err, tt.words)
		}
	}
}

// A server that is away is asked again. After that it may be away for good.
func TestFetchSurvivesDeathOfRealServer(t *testing.T) {
	server := live.Start(t, "git")
	dir := plant(t, server.Env["GIT_REPOSITORIES"])
	server.Order(t, "away 300ms")
	store := openLive(t, server, dir, "")
	server.Order(t, "kill") // what was fetched does not need it
	defer server.Order(t, "start")
	objects, keys := listing(t, store)
	if !slices.Equal(keys, below()) {
		t.Errorf("the listing has %q, want %q", keys, below())
	}
	for _, obj := range objects {
		if !bytes.Equal(read(t, store, obj), conformance.ContentsOf(obj.Key, obj.Size).Bytes()) {
			t.Errorf("reading %q: other bytes than were stored", obj.Key)
		}
	}
}
