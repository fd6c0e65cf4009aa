package nfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

func need(t *testing.T) *live.Server {
	t.Helper()
	return live.Start(t, "nfs")
}

// at returns the URL of a directory of the server. params are like "vers=3&rsize=64KiB".
func at(s *live.Server, path, params string) string {
	if strings.Contains(params, "vers=3") {
		params += "&mountport=" + s.Env["NFS_MOUNT_PORT"]
	}
	return "nfs://" + s.Env["NFS_SERVER"] + path + "?" + params
}

// openLive opens a directory of the real server.
func openLive(t *testing.T, path, params string) *backends.Store {
	t.Helper()
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(need(t), path, params), backends.Options{RetryFor: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// eachVersion runs a test with both versions of the protocol.
func eachVersion(t *testing.T, run func(t *testing.T, params string)) {
	for _, params := range versions {
		t.Run(params, func(t *testing.T) { run(t, params) })
	}
}

var versions = []string{"vers=4.1", "vers=3"}

func TestContract(t *testing.T) {
	all := versions
	if !testing.Short() {
		all = append(slices.Clone(all), "vers=4.1&rsize=32KiB&slots=3&conns=1", "vers=3&rsize=32KiB&slots=2")
	}
	for _, params := range all {
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, func(t *testing.T) *backends.Store { return openLive(t, "/data/contract-"+params, params) }, conformance.Options{})
		})
	}
}

// contentsTo compares the data written to it with the expected contents.
type contentsTo struct {
	want *conformance.Contents
	mu   sync.Mutex
	bad  int64
	n    int64
}

func (c *contentsTo) WriteAt(p []byte, off int64) (int, error) {
	want := make([]byte, len(p))
	n, _ := c.want.ReadAt(want, off)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(len(p))
	if string(want[:n]) != string(p) {
		c.bad++
	}
	return len(p), nil
}

func TestServerKilledDuringReads(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		server, store := need(t), openLive(t, "/data/killed-"+params, params+"&rsize=64KiB")
		const size = 48 << 20
		obj, err := store.Put(t.Context(), "k", conformance.ContentsOf("killed", size), size, backends.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		to := &slow{contentsTo: contentsTo{want: conformance.ContentsOf("killed", size)}, half: make(chan struct{}), on: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := store.ReadRange(t.Context(), obj, 0, size, to, nil)
			done <- err
		}()
		<-to.half
		server.Order(t, "kill")
		close(to.on)
		time.Sleep(time.Second) // the client runs into the missing server
		server.Order(t, "start")
		select {
		case err = <-done:
		case <-time.After(time.Minute):
			t.Fatal("the read has not ended a minute after the server came back")
		}
		if err != nil || to.bad > 0 || to.n < size {
			t.Errorf("read over a restart: %v, %d bytes of %d, %d blocks wrong", err, to.n, size, to.bad)
		}
	})
}

// slow pauses after half of the data.
type slow struct {
	contentsTo
	once     sync.Once
	half, on chan struct{}
}

func (s *slow) WriteAt(p []byte, off int64) (int, error) {
	if off >= 24<<20 {
		s.once.Do(func() { close(s.half); <-s.on })
	}
	return s.contentsTo.WriteAt(p, off)
}

// pausing is a source that pauses at half.
type pausing struct {
	io.ReaderAt
	once     sync.Once
	half, on chan struct{}
}

func (p *pausing) ReadAt(b []byte, off int64) (int, error) {
	if off >= 24<<20 {
		p.once.Do(func() { close(p.half); <-p.on })
	}
	return p.ReaderAt.ReadAt(b, off)
}

func TestServerKilledDuringWrites(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		server, store := need(t), openLive(t, "/data/written-"+params, params)
		const size = 48 << 20
		src := &pausing{ReaderAt: conformance.ContentsOf("written", size), half: make(chan struct{}), on: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := store.Put(t.Context(), "k", src, size, backends.CreateOptions{})
			done <- err
		}()
		<-src.half
		server.Order(t, "kill")
		close(src.on)
		time.Sleep(time.Second)
		server.Order(t, "start")
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("put over a restart: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the write has not ended a minute after the server came back")
		}
		obj, err := store.Stat(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		to := &contentsTo{want: conformance.ContentsOf("written", size)}
		if _, err := store.ReadRange(t.Context(), obj, 0, size, to, nil); err != nil || to.bad > 0 || obj.Size != size {
			t.Errorf("what was written over a restart: %v, %d bytes, %d blocks wrong", err, obj.Size, to.bad)
		}
	})
}

func TestErrorsOfARealServer(t *testing.T) {
	s := need(t)
	eachVersion(t, func(t *testing.T, params string) {
		put := func(path, params string) func() error {
			return func() error {
				store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(s, path, params), backends.Options{RetryFor: time.Nanosecond})
				if err != nil {
					return err
				}
				defer store.Close()
				_, err = store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
				return err
			}
		}
		makeLinks(t, filepath.Join(s.Env["NFS_DIR"], "links"))
		store := openLive(t, "/data", params)
		stat := func(key string) func() error {
			return func() error { _, err := store.Stat(t.Context(), key); return err }
		}
		list := func(prefix string) func() error {
			return func() (last error) {
				for _, err := range store.List(t.Context(), prefix) {
					last = err
				}
				return last
			}
		}
		secret := filepath.Join(s.Env["NFS_DIR"], "secret")
		if err := os.MkdirAll(secret, 0o700); err != nil {
			t.Fatal(err)
		}
		const fine = backends.Kind(255)
		// Version 4 hides an export from clients that may not use it.
		hidden, exports := backends.NotExist, "it exports data, readonly"
		if params == "vers=3" {
			hidden, exports = backends.Permission, "it exports /data, /old, /readonly, /secure"
		}
		for name, tt := range map[string]struct {
			do    func() error
			kind  backends.Kind
			words string
		}{
			"read-only":      {put("/readonly", params), backends.Permission, "read-only"},
			"another user":   {put("/data/secret", params+"&uid=4711&gid=4711"), backends.Permission, "?uid="},
			"no export":      {put("/nosuchexport", params), backends.NotExist, exports},
			"nor above":      {put("/nosuchexport/directory", params), backends.NotExist, exports},
			"other port":     {put("/secure", params+"&resvport=false"), hidden, ""},
			"reserved port":  {put("/secure", params+"&resvport=true"), fine, ""},
			"auto port":      {put("/secure", params), fine, ""},
			"version 3 only": {put("/old", "vers=auto&mountport="+s.Env["NFS_MOUNT_PORT"]), fine, ""},
			"a link":         {stat("links/file"), fine, ""},
			"below a link":   {stat("links/directory/in"), fine, ""},
			"list of links":  {list("links/f"), fine, ""},
			"leads nowhere":  {stat("links/nowhere"), backends.NotExist, ""},
			"in a circle":    {stat("links/circle/k"), backends.NotExist, ""},
			"leads out":      {stat("links/out/passwd"), backends.Unsupported, "outside of the URL's directory"},
			"list leads out": {list("links/out"), backends.Unsupported, "outside of the URL's directory"},
			"through a link": {put("/data/links/directory", params), fine, ""},
		} {
			err := tt.do()
			got := fine
			if err != nil {
				got = backends.KindOf(err)
			}
			if got != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
				t.Errorf("%s: got %v (%v), want %q of kind %v", name, err, got, tt.words, tt.kind)
			}
		}
	})
}

// makeLinks creates links of all kinds, once.
func makeLinks(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "real", "in"), []byte("in"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"file": "directory/in", "directory": "./real", "nowhere": "nothing", "circle": "circle", "real/up": "..", "out": "../../etc",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
}

func TestSweepsAfterKills(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		path := "/data/sweeps-" + params
		conformance.Sweeps(t, openLive(t, path, params), openLive(t, path, params))
	})
}

// NFS-Ganesha, the server of this test, omits a file that is replaced in one of 200 responses to READDIR.
func TestReplacements(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		path := "/data/replaced-" + params
		conformance.Replacements(t, openLive(t, path, params), openLive(t, path, params), conformance.ListedThroughout)
	})
}
