package hf

import (
	"bytes"
	"fmt"
	"net/http"
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

func (h *hub) try(t *testing.T, url string, opts backends.Options, variables ...string) (*backends.Store, error) {
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

func (h *hub) open(t *testing.T, url string, variables ...string) *backends.Store {
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
	for _, url := range []string{"hf://org/name/", "hf://datasets/org/name@v1.0/", "hf://spaces/org/name@refs/pr/1/", "hf://org/name@" + commit} {
		t.Run(url, func(t *testing.T) {
			h := start(t, tree)
			open := func(t *testing.T) *backends.Store { return h.open(t, url, "HF_TOKEN="+token) }
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
	h := start(t, tree)
	if _, keys := listing(t, h.open(t, "hf://org/name/onnx/")); !slices.Equal(keys, []string{"model.onnx"}) {
		t.Errorf("a directory has %q, want model.onnx", keys)
	}
	if _, obj, err := h.open(t, "hf://org/name/config.json").Self(t.Context()); err != nil || obj.Size != 700 {
		t.Errorf("one file: %+v, %v; want 700 bytes", obj, err)
	}
}

func TestLocationIsRenewedInMidFile(t *testing.T) {
	h := start(t, tree)
	h.set(func() { h.uses = 2 })
	store := h.open(t, "hf://org/name/", "HF_TOKEN="+token)
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
	for _, r := range h.requests() {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/resolve/") {
			redirected++
		}
	}
	if redirected != 4 {
		t.Errorf("the Hub was asked for %d locations, want one for two reads of 7", redirected)
	}
}

func TestSmallFileIsComparedWithItsBlob(t *testing.T) {
	h := start(t, tree)
	store := h.open(t, "hf://org/name/")
	obj, err := store.Stat(t.Context(), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	h.set(func() { h.corrupt = true })
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
		"missing":                 {"hf://org/other/", token, false, backends.NotExist, "org/other does not exist"},
		"revision":                {"hf://org/name@v9/", "", false, backends.NotExist, `org/name has no revision "v9"`},
		"wrong token":             {"hf://org/name/", "hf_wrong", false, backends.Permission, "the Hub rejects the token"},
		"gated":                   {"hf://datasets/org/name/", "", true, backends.Permission, "org/name is gated: request access at HUB/datasets/org/name, and set HF_TOKEN"},
		"no name":                 {"hf://org", "", false, backends.Invalid, "an hf URL looks like"},
		"no revision":             {"hf://org/name@/x", "", false, backends.Invalid, "an hf URL looks like"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, tree)
			h.set(func() { h.gated = tt.gated })
			store, err := h.try(t, tt.url, backends.Options{RetryFor: time.Millisecond}, "HF_TOKEN="+tt.token)
			if err == nil {
				_, err = store.Stat(t.Context(), "config.json")
			}
			words := strings.ReplaceAll(tt.words, "HUB", h.URL)
			if backends.KindOf(err) != tt.kind || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), token) {
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
	write(token + "\n")
	h := start(t, tree)
	h.set(func() { h.gated = true })
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
	if err := os.WriteFile(filepath.Join(secrets, "HF_TOKEN"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.try(t, "hf://org/name/", backends.Options{Secrets: secrets}, "HOME="+home); err != nil {
		t.Errorf("with the token of a Secret: %v", err)
	}
}

// All requests wait, not only the one that was refused.
func TestRateLimitKeepsAllRequestsBack(t *testing.T) {
	h := start(t, tree)
	store := h.open(t, "hf://org/name/")
	h.set(func() {
		h.faults = append(h.faults, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
	})
	before := len(h.requests())
	for range 3 {
		if _, err := store.Stat(t.Context(), "config.json"); backends.KindOf(err) != backends.Throttled {
			t.Errorf("stat: got %v, want kind throttled", err)
		}
	}
	if got := len(h.requests()) - before; got != 1 {
		t.Errorf("the Hub had %d requests, want 1", got)
	}
}

// The Hub's own client takes the fake for a Hub.
func TestFakeServesHuggingFaceClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err == nil {
		if err = exec.CommandContext(t.Context(), python, "-c", "import huggingface_hub").Run(); err != nil {
			err = fmt.Errorf("%s cannot import huggingface_hub: %w", python, err)
		}
	}
	live.Require(t, "hf", err)
	h := start(t, tree)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import sys, huggingface_hub as hub
api = hub.HfApi()
print(sorted(api.list_repo_files("org/name")))
print(sorted(e.path for e in api.list_repo_tree("org/name", recursive=True) if hasattr(e, "blob_id")))
hub.snapshot_download("org/name", local_dir=sys.argv[1])
`, dir)
	cmd.Env = append(os.Environ(), "HF_ENDPOINT="+h.URL, "HF_TOKEN="+token, "HF_HOME="+t.TempDir(), "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_TELEMETRY=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for key, size := range tree {
		got, err := os.ReadFile(filepath.Join(dir, key))
		if err != nil || !bytes.Equal(got, conformance.ContentsOf(key, size).Bytes()) {
			t.Errorf("%q: %v, or other bytes", key, err)
		}
	}
}
