package hubcache

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/hub"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/plan"
)

const snapshot = "models--org--name/snapshots/" + hub.Commit

// prefetch fetches a URL of the fake into dir.
func prefetch(t *testing.T, h *hub.Hub, url, dir string, change func(*download.Config)) (download.Summary, error) {
	t.Helper()
	store, err := all.Registry().Open(t.Context(), url, backends.Options{
		RetryFor: 5 * time.Second, Getenv: func(name string) string { return map[string]string{"HF_ENDPOINT": h.URL}[name] },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	cfg := download.Config{Store: store, Dir: dir}
	if change != nil {
		change(&cfg)
	}
	return Prefetch(t.Context(), cfg)
}

func wantPrefetch(t *testing.T, h *hub.Hub, url, dir string, change func(*download.Config)) download.Summary {
	t.Helper()
	summary, err := prefetch(t, h, url, dir, change)
	if err != nil {
		t.Fatalf("prefetch %s: %v", url, err)
	}
	return summary
}

// wantFile compares a file of the snapshot, which must be a relative link to a blob.
func wantFile(t *testing.T, dir, repo, name string, size int64) {
	t.Helper()
	path := filepath.Join(dir, repo, name)
	to, err := os.Readlink(path)
	if err != nil || filepath.IsAbs(to) || filepath.Base(filepath.Dir(to)) != "blobs" {
		t.Errorf("%s links to %q, %v; want a relative path in blobs", name, to, err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(conformance.ContentsOf(name, size).Bytes()) {
		t.Errorf("%s: %v, or other bytes", name, err)
	}
}

func wantRef(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s contains %q, %v; want %q", path, got, err, want)
	}
}

func TestPrefetchWritesBlobsSnapshotAndRef(t *testing.T) {
	sizes := map[string]int64{"config.json": 700, "model.safetensors": 3<<20 + 5, "onnx/deep/model.onnx": 1 << 20, "empty": 0}
	h := hub.Start(t, sizes)
	dir := t.TempDir()
	wantPrefetch(t, h, "hf://org/name@main", dir, nil)
	for name, size := range sizes {
		wantFile(t, dir, snapshot, name, size)
	}
	wantRef(t, filepath.Join(dir, "models--org--name/refs/main"), hub.Commit)

	before := len(h.Requests())
	if s := wantPrefetch(t, h, "hf://org/name@v1.0", dir, nil); s.FetchedFiles != 0 || s.WarmFiles != 4 || s.Source != "hf://org/name@v1.0" || s.Destination != dir {
		t.Errorf("another revision with the same files: %+v; want 4 warm files", s)
	}
	for _, r := range h.Requests()[before:] {
		if strings.Contains(r.URL.Path, "/resolve/") {
			t.Errorf("another revision with the same files: the Hub had a request for %s", r.URL.Path)
		}
	}
	wantRef(t, filepath.Join(dir, "models--org--name/refs/v1.0"), hub.Commit)
}

func TestDirectoriesHaveTheNamesOfTheHubCache(t *testing.T) {
	h := hub.Start(t, map[string]int64{"train/a.parquet": 9, "train/b.parquet": 8, "test/c": 7})
	for _, tt := range []struct{ url, directory, ref string }{
		{"hf://datasets/org/name@refs/pr/1", "datasets--org--name", "refs/refs/pr/1"},
		{"hf://spaces/org/name", "spaces--org--name", "refs/main"},
		{"hf://org/name@" + hub.Commit, "models--org--name", ""},
		{"hf://org/name/train/", "models--org--name", "refs/main"},
		{"hf://org/name/train/a.parquet", "models--org--name", "refs/main"},
	} {
		dir := t.TempDir()
		wantPrefetch(t, h, tt.url, dir, func(cfg *download.Config) {
			if directory, obj, err := cfg.Store.Self(t.Context()); err == nil {
				cfg.Store, cfg.Object = directory, &obj
			}
		})
		wantFile(t, dir, tt.directory+"/snapshots/"+hub.Commit, "train/a.parquet", 9)
		if _, err := os.Lstat(filepath.Join(dir, tt.directory, "snapshots", hub.Commit, "test")); (err == nil) == strings.Contains(tt.url, "train/") {
			t.Errorf("%s: stat of another directory: %v", tt.url, err)
		}
		if tt.ref != "" {
			wantRef(t, filepath.Join(dir, tt.directory, tt.ref), hub.Commit)
		} else if _, err := os.Stat(filepath.Join(dir, tt.directory, "refs")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: stat of refs: %v, want none for a commit", tt.url, err)
		}
	}
}

// Selections of several runs add up in one snapshot, and equal files are fetched once.
func TestSnapshotGrows(t *testing.T) {
	h := hub.Start(t, map[string]int64{"config.json": 700})
	h.Add("a/one", "same")
	h.Add("two", "same")
	dir := t.TempDir()
	only := func(glob string) func(*download.Config) {
		return func(cfg *download.Config) { cfg.Listing.Filter = plan.Filter{Include: []string{glob}} }
	}
	wantPrefetch(t, h, "hf://org/name", dir, only("*.json"))
	if s := wantPrefetch(t, h, "hf://org/name", dir, nil); s.FetchedFiles != 1 {
		t.Errorf("fetched %d files, want one for two with the same bytes", s.FetchedFiles)
	}
	wantFile(t, dir, snapshot, "config.json", 700)
	for _, name := range []string{"a/one", "two"} {
		if got, err := os.ReadFile(filepath.Join(dir, snapshot, name)); err != nil || string(got) != "same" {
			t.Errorf("%s contains %q, %v", name, got, err)
		}
	}
}

// Until all blobs are complete, readers see neither the snapshot nor a new ref.
func TestFailureShowsNothing(t *testing.T) {
	h := hub.Start(t, map[string]int64{"config.json": 700, "model.safetensors": 3 << 20})
	dir := t.TempDir()
	ref := filepath.Join(dir, "models--org--name/refs/main")
	if err := errors.Join(os.MkdirAll(filepath.Dir(ref), 0o755), os.WriteFile(ref, []byte("old"), 0o644)); err != nil {
		t.Fatal(err)
	}
	h.Set(func() {
		deny := func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/model.safetensors") {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		h.Faults = append(h.Faults, deny)
	})
	_, err := prefetch(t, h, "hf://org/name", dir, nil)
	if backends.KindOf(err) != backends.Permission {
		t.Fatalf("a file that is denied: got %v, want kind permission", err)
	}
	wantRef(t, ref, "old")
	if _, err := os.Stat(filepath.Join(dir, snapshot)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of the snapshot: %v, want none", err)
	}
	if s := wantPrefetch(t, h, "hf://org/name", dir, nil); s.WarmFiles+s.FetchedFiles != 2 {
		t.Errorf("the next run has %+v, want two files", s)
	}
	wantFile(t, dir, snapshot, "model.safetensors", 3<<20)
	wantRef(t, ref, hub.Commit)
}

func TestExistingEntries(t *testing.T) {
	h := hub.Start(t, map[string]int64{"config.json": 700, "model.safetensors": 1 << 20})
	dir := t.TempDir()
	link := filepath.Join(dir, snapshot, "config.json")
	other := filepath.Join(dir, "other")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.WriteFile(other, []byte("mine"), 0o644), os.Symlink(other, link)); err != nil {
		t.Fatal(err)
	}
	_, err := prefetch(t, h, "hf://org/name", dir, nil)
	if backends.KindOf(err) != backends.Exist || !strings.Contains(err.Error(), `1 of its links, such as "config.json"; move it away, or replace it with --overwrite`) {
		t.Errorf("another link in the snapshot: got %v, want kind exist", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "models--org--name/refs/main")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of the ref: %v, want none", err)
	}
	wantPrefetch(t, h, "hf://org/name", dir, func(cfg *download.Config) { cfg.Overwrite = true })
	wantFile(t, dir, snapshot, "config.json", 700)
	if got, err := os.ReadFile(other); err != nil || string(got) != "mine" {
		t.Errorf("the file behind the other link contains %q, %v", got, err)
	}

	blob, err := filepath.EvalSymlinks(filepath.Join(dir, snapshot, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	// Without the record it is a blob of another program, of which only the bytes tell.
	if err := os.RemoveAll(filepath.Join(dir, "models--org--name/.stager")); err != nil {
		t.Fatal(err)
	}
	if s := wantPrefetch(t, h, "hf://org/name", dir, nil); s.WarmFiles != 2 {
		t.Errorf("blobs of another program that are right: %+v, want 2 warm files", s)
	}
	text[5]++
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "models--org--name/.stager")), os.WriteFile(blob, text, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := prefetch(t, h, "hf://org/name", dir, nil); backends.KindOf(err) != backends.Exist {
		t.Errorf("a blob of another program that is wrong: got %v, want kind exist", err)
	}
	wantPrefetch(t, h, "hf://org/name", dir, func(cfg *download.Config) { cfg.Overwrite = true })
	wantFile(t, dir, snapshot, "model.safetensors", 1<<20)
}

func TestHostileListingIsRefused(t *testing.T) {
	for name, item := range map[string]string{
		"hash":  `[{"type":"file","path":"a","size":1,"oid":"../../../../tmp/x"}]`,
		"empty": `[{"type":"file","path":"a","size":1,"oid":""}]`,
		"path":  `[{"type":"file","path":"../../a","size":1,"oid":"0123456789abcdef0123456789abcdef01234567"}]`,
		"sizes": `[{"type":"file","path":"a","size":1,"oid":"0123456789abcdef0123456789abcdef01234567"},{"type":"file","path":"b","size":2,"oid":"0123456789abcdef0123456789abcdef01234567"}]`,
	} {
		h := hub.Start(t, map[string]int64{"a": 1})
		h.Set(func() {
			h.Faults = append(h.Faults, func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/tree/") {
					return false
				}
				_, err := w.Write([]byte(item))
				return err == nil
			})
		})
		dir := t.TempDir()
		if _, err := prefetch(t, h, "hf://org/name", dir, nil); err == nil {
			t.Errorf("%s: prefetch succeeded", name)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", name, left, err)
		}
	}
}

func TestPrefetchRefusesOtherStores(t *testing.T) {
	store, err := all.Registry().Open(t.Context(), "file://"+t.TempDir(), backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prefetch(context.Background(), download.Config{Store: store, Dir: t.TempDir()}); backends.KindOf(err) != backends.Invalid {
		t.Errorf("got %v, want kind invalid", err)
	}
}
