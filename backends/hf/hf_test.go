package hf

import (
	"bytes"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/hub"
)

var tree = map[string]int64{
	"config.json": 700, "model.safetensors": 3<<20 + 5, "onnx/model.onnx": 1 << 20, "a/b c#d?e%f.txt": 20, "a.txt": 0, "a-b": 5, "ü.bin": 7,
}

// sorted are the keys of tree, in order.
func sorted() (keys []string) {
	for key := range tree {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// fake opens stores of a fake of the Hub.
type fake struct{ *hub.Hub }

func newHub(t *testing.T) fake { return fake{hub.Start(t, maps.Clone(tree))} }

func (h fake) try(t *testing.T, url string, opts backends.Options, variables ...string) (*backends.Store, error) {
	t.Helper()
	opts.Getenv = func(name string) string {
		for _, v := range append(variables, "HF_ENDPOINT="+h.URL) {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	if opts.RetryFor == 0 {
		opts.RetryFor = time.Minute
	}
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), url, opts)
	if err == nil {
		t.Cleanup(func() { store.Close() })
	}
	return store, err
}

func (h fake) open(t *testing.T, url string, variables ...string) *backends.Store {
	t.Helper()
	store, err := h.try(t, url, backends.Options{}, variables...)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func listing(t *testing.T, store *backends.Store) (objects []backends.Object, keys []string) {
	t.Helper()
	for obj, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		objects, keys = append(objects, obj), append(keys, obj.Key)
	}
	return objects, keys
}

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func wantReads(t *testing.T, store *backends.Store, obj backends.Object) {
	t.Helper()
	got, h := make(memory, obj.Size), backends.SHA256.New()
	sum, err := store.ReadRange(t.Context(), obj, 0, obj.Size, got, h)
	if want := conformance.ContentsOf(obj.Key, obj.Size).Bytes(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("reading %q: %v, the bytes are right: %t", obj.Key, err, bytes.Equal(got, want))
	}
	if obj.Size > 0 && sum != backends.SumOf(backends.SHA256, h) {
		t.Errorf("%q has the checksum %v, want that of its bytes", obj.Key, sum)
	}
}

func TestReadingHalfOfContract(t *testing.T) {
	for _, url := range []string{"hf://org/name/", "hf://datasets/org/name@v1.0/", "hf://spaces/org/name@refs/pr/1/", "hf://org/name@" + hub.Commit} {
		t.Run(url, func(t *testing.T) {
			h := newHub(t)
			open := func(t *testing.T) *backends.Store { return h.open(t, url, "HF_TOKEN="+hub.Token) }
			objects, keys := listing(t, open(t))
			if !slices.Equal(keys, sorted()) {
				t.Fatalf("the listing has %q, want %q", keys, sorted())
			}
			conformance.Inspect(t, open, objects)
			for _, obj := range objects {
				wantReads(t, open(t), obj)
			}
		})
	}
	h := newHub(t)
	if _, keys := listing(t, h.open(t, "hf://org/name/onnx/")); !slices.Equal(keys, []string{"model.onnx"}) {
		t.Errorf("a directory has %q, want model.onnx", keys)
	}
	if _, obj, err := h.open(t, "hf://org/name/config.json").Self(t.Context()); err != nil || obj.Size != 700 {
		t.Errorf("one file: %+v, %v; want 700 bytes", obj, err)
	}
}

func TestLocationIsRenewedInMidFile(t *testing.T) {
	h := newHub(t)
	h.Set(func() { h.Uses = 2 })
	store := h.open(t, "hf://org/name/", "HF_TOKEN="+hub.Token)
	obj, err := store.Stat(t.Context(), "model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	got := make(memory, obj.Size)
	for off := int64(0); off < obj.Size; off += 500_000 {
		if _, err := store.ReadRange(t.Context(), obj, off, min(500_000, obj.Size-off), got, nil); err != nil {
			t.Fatal(err)
		}
	}
	if want := conformance.ContentsOf(obj.Key, obj.Size).Bytes(); !bytes.Equal(got, want) {
		t.Error("the bytes are not those of the file")
	}
	redirected := 0
	for _, r := range h.Requests() {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/resolve/") {
			redirected++
		}
	}
	if redirected != 4 {
		t.Errorf("the Hub was asked for %d locations, want one for two reads of 7", redirected)
	}
}

func TestSmallFileIsComparedWithItsBlob(t *testing.T) {
	h := newHub(t)
	store := h.open(t, "hf://org/name/")
	obj, err := store.Stat(t.Context(), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	h.Set(func() { h.Corrupt = true })
	if _, err := store.ReadRange(t.Context(), obj, 0, 10, make(memory, 10), nil); backends.KindOf(err) != backends.Corrupt {
		t.Errorf("reading other bytes: got %v, want kind corrupt", err)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		url, token string
		gated      bool
		kind       backends.Kind
		words      string
	}{
		"missing without a token": {"hf://org/other/", "", false, backends.Permission, "org/other does not exist, or is private and needs the HF_TOKEN"},
		"missing":                 {"hf://org/other/", hub.Token, false, backends.NotExist, "org/other does not exist"},
		"revision":                {"hf://org/name@v9/", "", false, backends.NotExist, `org/name has no revision "v9"`},
		"wrong token":             {"hf://org/name/", "hf_wrong", false, backends.Permission, "the Hub rejects the token"},
		"gated":                   {"hf://datasets/org/name/", "", true, backends.Permission, "org/name is gated: request access at HUB/datasets/org/name, and set HF_TOKEN"},
		"no name":                 {"hf://org", "", false, backends.Invalid, "an hf URL looks like"},
		"no revision":             {"hf://org/name@/x", "", false, backends.Invalid, "an hf URL looks like"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			h.Set(func() { h.Gated = tt.gated })
			store, err := h.try(t, tt.url, backends.Options{RetryFor: time.Millisecond}, "HF_TOKEN="+tt.token)
			if err == nil {
				_, err = store.Stat(t.Context(), "config.json")
			}
			words := strings.ReplaceAll(tt.words, "HUB", h.URL)
			if backends.KindOf(err) != tt.kind || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), hub.Token) {
				t.Errorf("got %v (kind %s), want kind %s and %q", err, backends.KindOf(err), tt.kind, words)
			}
		})
	}
}

func TestTokenIsFoundAndRenewed(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".cache", "huggingface", "token")
	write := func(text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(hub.Token + "\n")
	h := newHub(t)
	h.Set(func() { h.Gated = true })
	store := h.open(t, "hf://org/name/", "HOME="+home)
	if _, err := store.Stat(t.Context(), "config.json"); err != nil {
		t.Errorf("stat: %v", err)
	}
	write("hf_old")
	store = nil
	if _, err := h.try(t, "hf://org/name/", backends.Options{}, "HOME="+home); backends.KindOf(err) != backends.Permission {
		t.Errorf("with an old token: got %v, want kind permission", err)
	}
	secrets := t.TempDir()
	if err := os.WriteFile(filepath.Join(secrets, "HF_TOKEN"), []byte(hub.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.try(t, "hf://org/name/", backends.Options{Secrets: secrets}, "HOME="+home); err != nil {
		t.Errorf("with the token of a Secret: %v", err)
	}
}

// All requests wait, not only the one that was refused.
func TestRateLimitKeepsAllRequestsBack(t *testing.T) {
	h := newHub(t)
	store := h.open(t, "hf://org/name/")
	h.Set(func() {
		h.Faults = append(h.Faults, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
	})
	before := len(h.Requests())
	for range 3 {
		if _, err := store.Stat(t.Context(), "config.json"); backends.KindOf(err) != backends.Throttled {
			t.Errorf("stat: got %v, want kind throttled", err)
		}
	}
	if got := len(h.Requests()) - before; got != 1 {
		t.Errorf("the Hub had %d requests, want 1", got)
	}
}
