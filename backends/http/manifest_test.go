package http

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// sha256Of returns the checksum of the contents of a key.
func sha256Of(key string, size int64) string {
	return conformance.ContentsOf(key, size).Sum(backends.SHA256).Value
}

func TestManifestListsObjects(t *testing.T) {
	f := start(t, map[string]int64{"data/a.tar": 1000, "data/sub/b c.tar": 2000, "data/unlisted": 1, "elsewhere/x": 7})
	a, b, x := sha256Of("data/a.tar", 1000), sha256Of("data/sub/b c.tar", 2000), sha256Of("elsewhere/x", 7)
	f.put("data/SHA256SUMS", []byte(a+"  a.tar\n\n# comment\n"+strings.ToUpper(b)+" *./sub/b c.tar\n"))
	f.put("data/tagged", []byte("SHA256 (a.tar) = "+a+"\nSHA256 (sub/b c.tar) = "+b+"\n"))
	f.put("data/list.jsonl", fmt.Appendf(nil, `{"url":"a.tar","size":1000,"sha256":%q}
{"url":"sub/b%%20c.tar","sha256":%q}
{"url":"%s/elsewhere/x?sig=hunter2","size":7,"key":"deep/x","sha256":%q}
`, a, b, f.URL, x))
	for manifest, want := range map[string][]string{
		"SHA256SUMS": {"a.tar", "sub/b c.tar"}, "/data/tagged": {"a.tar", "sub/b c.tar"}, f.URL + "/data/list.jsonl": {"a.tar", "deep/x", "sub/b c.tar"},
	} {
		open := func(t *testing.T) *backends.Store { return f.open(t, "/data/?manifest="+manifest, backends.Options{}) }
		objects := listing(t, open(t), "")
		if got := keys(objects); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", manifest, got, want)
		}
		for _, obj := range objects {
			if obj.Sum.Algorithm != backends.SHA256 {
				t.Errorf("%s: %q has the checksum %v, want one of sha256", manifest, obj.Key, obj.Sum)
			}
		}
		t.Run(filepath.Base(manifest), func(t *testing.T) { conformance.Inspect(t, open, objects) })
	}
}

func TestBadManifestsAreRefused(t *testing.T) {
	sum := strings.Repeat("0", 64)
	for name, tt := range map[string]struct {
		text, words string
		kind        backends.Kind
	}{
		"outside":            {sum + "  ../x", "line 1 of the manifest: the name is not one below", backends.Invalid},
		"absolute":           {sum + "  /etc/passwd", "the name is not one below", backends.Invalid},
		"short":              {"00  x", "neither a checksum of SHA-256", backends.Invalid},
		"twice":              {sum + "  x\n" + sum + "  x", "line 2 of the manifest: an earlier line has the same name", backends.Invalid},
		"empty":              {"\n", "lists no object", backends.Invalid},
		"not JSON":           {`{"url":"hunter2`, "not an object of JSON", backends.Invalid},
		"another protocol":   {`{"url":"ftp://hunter2/x"}`, "not one of http or https", backends.Invalid},
		"password":           {`{"url":"http://me:hunter2@host/x"}`, "credentials do not belong", backends.Invalid},
		"key":                {`{"url":"x","key":"../hunter2"}`, "the key is not a name", backends.Invalid},
		"size":               {`{"url":"x","size":-1}`, "the size is negative", backends.Invalid},
		"checksum":           {`{"url":"x","sha256":"hunter2"}`, "sha256 is not a checksum", backends.Invalid},
		"control characters": {"{\"url\":\"http://host/\\nhunter2\"}", "not one of http or https", backends.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			f.put("m", []byte(tt.text))
			_, err := f.try(t, "/?manifest=m", backends.Options{})
			if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) || strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("open: got %v, want kind %s and %q", err, tt.kind, tt.words)
			}
		})
	}
	f := start(t, nil)
	if _, err := f.try(t, "/data/?manifest=none", backends.Options{}); backends.KindOf(err) != backends.NotExist || !strings.Contains(err.Error(), "cannot read the manifest") {
		t.Errorf("without a manifest: got %v, want kind not-exist", err)
	}
}

// A signature is valid for GET alone, and expires; no message contains it.
func TestSignedURLsStaySecret(t *testing.T) {
	f := start(t, map[string]int64{"bucket/x": 1000})
	f.set(func(w *way) { w.NoHead = true })
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, fmt.Appendf(nil, "{\"url\":\"%s/bucket/x?X-Sig=hunter2 a\",\"size\":1000}\n", f.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	store := f.open(t, "/?manifest=file://"+list, backends.Options{})
	obj := listing(t, store, "")[0]
	wantReads(t, store, obj, "bucket/x")
	for _, r := range f.requests() {
		if r.URL.Query().Get("X-Sig") != "hunter2 a" {
			t.Errorf("the request for %s lacks its signature", r.URL.Path)
		}
	}
	expired := func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true }
	for range 5 {
		f.fail(expired)
	}
	_, err := store.Stat(t.Context(), obj.Key)
	_, rerr := store.ReadRange(t.Context(), obj, 0, 10, make(memory, 1000), nil)
	for _, err := range []error{err, rerr} {
		if backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), "may have expired: renew the manifest") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("with an old signature: got %v, want kind permission and what to do", err)
		}
	}
	f.Close()
	if _, err := f.open(t, "/?manifest=file://"+list, backends.Options{RetryFor: 1}).Stat(t.Context(), obj.Key); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("without a server: got %v, want an error without the signature", err)
	}
}

func TestManifestSizeIsCompared(t *testing.T) {
	f := start(t, map[string]int64{"x": 1000})
	f.put("m", []byte(`{"url":"x","size":999}`))
	if _, err := f.open(t, "/?manifest=m", backends.Options{}).Stat(t.Context(), "x"); backends.KindOf(err) != backends.Corrupt {
		t.Errorf("stat: got %v, want kind corrupt", err)
	}
}

func TestBracesNameObjects(t *testing.T) {
	f := start(t, map[string]int64{"wds/train-000.tar": 5, "wds/train-001.tar": 6, "wds/val-000.tar": 7, "wds/val-001.tar": 8, "wds/train-002.tar": 9})
	store := f.open(t, "/wds/{train,val}-{000..001}.tar", backends.Options{})
	if got, want := keys(listing(t, store, "")), []string{"train-000.tar", "train-001.tar", "val-000.tar", "val-001.tar"}; !slices.Equal(got, want) {
		t.Errorf("the listing has %q, want %q", got, want)
	}
	if _, _, err := store.Self(t.Context()); backends.KindOf(err) != backends.NotExist {
		t.Errorf("the URL itself: got %v, want kind not-exist", err)
	}
	missing := f.open(t, "/wds/train-{000..003}.tar", backends.Options{})
	var last error
	for _, err := range missing.List(t.Context(), "") {
		last = err
	}
	if backends.KindOf(last) != backends.NotExist || !strings.Contains(last.Error(), "train-003.tar") {
		t.Errorf("a missing shard: got %v, want kind not-exist and its name", last)
	}
	for path, words := range map[string]string{
		"/a{1..}": "no ascending sequence", "/a{3..1}": "no ascending sequence", "/a{x}": "names nothing", "/a{1..2": "unbalanced", "/a}": "unbalanced",
		"/{0..999999}{0..9}": "more than 1000000 objects", "/{0..99999999}": "more than 1000000 objects", "/{a,..}": "no ascending sequence", "/{a,}/x": "no path of an object",
	} {
		if _, err := f.try(t, path, backends.Options{}); backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("%s: got %v, want kind invalid and %q", path, err, words)
		}
	}
}

func FuzzChecksumLine(f *testing.F) {
	f.Add(strings.Repeat("0", 64) + "  name")
	f.Add(`\` + strings.Repeat("0", 64) + ` *na\nme`)
	f.Add("SHA256 (name) = " + strings.Repeat("0", 64))
	f.Fuzz(func(t *testing.T, line string) {
		if sum, name, ok := checksumLine(line); ok && (name == "" || len(sum.Value) != 64) {
			t.Errorf("%q has the name %q and the checksum %v", line, name, sum)
		}
	})
}
