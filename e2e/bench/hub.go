package bench

import (
	"context"
	"crypto/sha1" // as Git does
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/e2e/servers"
)

// models is a Hub of directories: each is a repository of the organisation org, whose large files are on
// another server. Files are sent by sendfile.
type models struct {
	*httptest.Server

	large   *httptest.Server
	dir     string
	entries map[string][]map[string]any // by repository, as the API lists them
}

const (
	hubCommit = "0123456789abcdef0123456789abcdef01234567"
	hubLarge  = 1 << 20 // the size from which files are on the other server
	hubPage   = 1000    // files on a page of a listing
)

func startModels(dir string, repositories ...string) (*models, error) {
	m := &models{dir: dir, entries: make(map[string][]map[string]any)}
	for _, name := range repositories {
		if err := m.list(name); err != nil {
			return nil, err
		}
	}
	m.large = httptest.NewServer(http.FileServer(http.Dir(dir)))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/models/org/{name}/revision/{revision}", m.revision)
	mux.HandleFunc("GET /api/models/org/{name}/tree/{revision}", m.tree)
	mux.HandleFunc("GET /org/{name}/resolve/{revision}/{key}", m.resolve)
	m.Server = httptest.NewServer(mux)
	return m, nil
}

func (m *models) stop() error {
	m.Close()
	m.large.Close()
	return nil
}

// list hashes the files of a repository, as the Hub did when they were sent to it.
func (m *models) list(name string) error {
	files, err := os.ReadDir(filepath.Join(m.dir, name))
	if err != nil {
		return err
	}
	for _, e := range files {
		f, err := os.Open(filepath.Join(m.dir, name, e.Name()))
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		var sum hash.Hash = sha256.New()
		if info.Size() < hubLarge {
			sum = sha1.New()
			fmt.Fprintf(sum, "blob %d\x00", info.Size())
		}
		if _, err := io.Copy(sum, f); err != nil {
			return errors.Join(err, f.Close())
		}
		_ = f.Close() // it was read
		oid := hex.EncodeToString(sum.Sum(nil))
		entry := map[string]any{"type": "file", "path": e.Name(), "size": info.Size(), "oid": oid}
		if info.Size() >= hubLarge {
			entry["oid"], entry["lfs"] = strings.Repeat("1", 40), map[string]any{"oid": oid, "size": info.Size(), "pointerSize": 130}
		}
		m.entries[name] = append(m.entries[name], entry)
	}
	return nil
}

func (m *models) revision(w http.ResponseWriter, r *http.Request) {
	var siblings []map[string]any
	for _, e := range m.entries[r.PathValue("name")] {
		siblings = append(siblings, map[string]any{"rfilename": e["path"]})
	}
	id := "org/" + r.PathValue("name")
	w.Header().Set("X-Repo-Commit", hubCommit)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have left
		"id": id, "modelId": id, "sha": hubCommit, "siblings": siblings, "private": false, "tags": []string{}, "downloads": 0, "likes": 0,
	})
}

func (m *models) tree(w http.ResponseWriter, r *http.Request) {
	entries := m.entries[r.PathValue("name")]
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor")) // none: the first page
	to := min(from+hubPage, len(entries))
	if to < len(entries) {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.Itoa(to))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", `<http://`+r.Host+next.RequestURI()+`>; rel="next"`)
	}
	w.Header().Set("X-Repo-Commit", hubCommit)
	_ = json.NewEncoder(w).Encode(entries[from:to]) // as above
}

func (m *models) resolve(w http.ResponseWriter, r *http.Request) {
	name, key := r.PathValue("name"), r.PathValue("key")
	for _, e := range m.entries[name] {
		if e["path"] != key {
			continue
		}
		w.Header().Set("X-Repo-Commit", hubCommit)
		lfs, large := e["lfs"].(map[string]any)
		if !large {
			w.Header().Set("ETag", `"`+e["oid"].(string)+`"`)
			http.ServeFile(w, r, filepath.Join(m.dir, name, key))
			return
		}
		w.Header().Set("X-Linked-Size", fmt.Sprint(e["size"]))
		w.Header().Set("X-Linked-Etag", `"`+lfs["oid"].(string)+`"`)
		w.Header().Set("Location", m.large.URL+"/"+name+"/"+key+"?Signature=1")
		w.WriteHeader(http.StatusFound)
		return
	}
	http.NotFound(w, r)
}

// hf is beside "hf download", which verifies no contents.
func hf(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if err := servers.Install(ctx, "hf", lab.Log); err != nil {
		return nil, "", nil, err
	}
	python, err := servers.HuggingFace()
	if err != nil {
		return nil, "", nil, err
	}
	dir := filepath.Join(lab.Dir, "hf")
	model, err := MakeData(dir, lab.Data.Size, 200, lab.Data.Size/100)
	if err != nil {
		return nil, "", nil, err
	}
	if err := firstOf(os.RemoveAll(model.One), os.Rename(model.Many, filepath.Join(dir, "model")),
		os.Symlink(lab.Data.One, filepath.Join(dir, "one")), os.Symlink(lab.Data.Many, filepath.Join(dir, "many"))); err != nil {
		return nil, "", nil, err
	}
	hub, err := startModels(dir, "one", "many", "model")
	if err != nil {
		return nil, "", nil, err
	}
	s := site{lab: lab, name: "hf", url: "hf://org/", env: []string{"HF_ENDPOINT=" + hub.URL, "HF_HOME=" + filepath.Join(dir, "home")}, peer: "hf download"}
	s.get = func(from, to string) *exec.Cmd {
		cmd := exec.Command(python.Python, "-c", "from huggingface_hub.cli.hf import main; main()", //nolint:noctx // measure runs it
			"download", "org/"+from, "--local-dir", to, "--max-workers=16", "--quiet")
		cmd.Env = append(append(os.Environ(), s.env...), "PYTHONPATH="+python.Path, "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_TELEMETRY=1")
		return cmd
	}
	whole := s.reading(set{"model", filepath.Join(dir, "model"), fmt.Sprintf("200 × %s", sizeOf(lab.Data.Size/100)), 200 * (lab.Data.Size / 100), 200})
	whole.Goal = Goal{Ratio: 3}
	return append(s.readings(), whole), "a Hub in the process that measures; " + versionOf(python.Python, "--version"), func() error { return errors.Join(hub.stop(), os.RemoveAll(dir)) }, nil
}
