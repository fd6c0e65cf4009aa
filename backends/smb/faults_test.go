package smb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"
	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// eachMode runs a test against all servers.
func eachMode(t *testing.T, run func(t *testing.T, s *live.Server)) {
	for _, mode := range []string{"plain", "signed", "encrypted"} {
		t.Run(mode, func(t *testing.T) { run(t, need(t, mode)) })
	}
}

func TestErrorsOfARealServer(t *testing.T) {
	eachMode(t, func(t *testing.T, s *live.Server) {
		for _, tt := range []struct {
			path    string
			changed string
			write   bool
			kind    backends.Kind
			words   string
		}{
			{"data/", "", false, backends.NotExist, "there is no such file"},
			{"data/missing/", "", false, backends.NotExist, "there is no such file"},
			{"noshare/", "", false, backends.NotExist, `has no share named "noshare"`},
			{"data/", "SMB_PASSWORD=wrong", false, backends.Permission, "wrong user name or password"},
			{"data/", "SMB_USERNAME=nobody-else", false, backends.Permission, "wrong user name or password"},
			{"data/", "SMB_PASSWORD=", false, backends.Permission, "no user and password were found"},
			{"readonly/", "", true, backends.Permission, "read-only"},
			{"data/?mapchars=off", "", true, backends.Invalid, `SMB does not allow ':' in names`},
		} {
			store := openLive(t, s, tt.path, tt.changed)
			var err error
			if tt.write {
				_, err = store.PutBytes(t.Context(), "a:b", []byte("x"), backends.CreateOptions{})
			} else {
				_, err = store.Stat(t.Context(), "x")
			}
			if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
				t.Errorf("%s with %q: %v (%v); want %q of kind %v", tt.path, tt.changed, err, backends.KindOf(err), tt.words, tt.kind)
			}
			if strings.Contains(fmt.Sprint(err), s.Env["SMB_PASSWORD"]) {
				t.Errorf("the error shows a secret: %v", err)
			}
		}
		ended := false
		for _, err := range openLive(t, s, "noshare/").List(t.Context(), "") {
			ended = true
			if backends.KindOf(err) != backends.NotExist {
				t.Errorf("List of a share that is missing: %v; want an error", err)
			}
		}
		if !ended {
			t.Error("List of a share that is missing is empty, want an error")
		}
		if err := openLive(t, s, "noshare/").Delete(t.Context(), "x"); backends.KindOf(err) != backends.NotExist {
			t.Errorf("Delete in a share that is missing: %v; want an error", err)
		}
	})
}

func TestKeyBelowAFile(t *testing.T) {
	store := openLive(t, need(t, "plain"), "data/below/")
	if _, err := store.PutBytes(t.Context(), "file", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"file/x", "file/x/y"} {
		_, err := store.PutBytes(t.Context(), key, []byte("x"), backends.CreateOptions{})
		if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), "is a file") {
			t.Errorf("putting %q: %v; want kind invalid", key, err)
		}
	}
	if _, err := store.PutBytes(t.Context(), "directory/x", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := store.PutBytes(t.Context(), "directory", []byte("x"), backends.CreateOptions{})
	if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), "a directory has this name") {
		t.Errorf("putting a directory's name: %v; want kind invalid", err)
	}
}

func TestErrorOfAFullDisk(t *testing.T) {
	eachMode(t, func(t *testing.T, s *live.Server) {
		if s.Env["SMB_FULL_SHARE"] == "" {
			live.Require(t, "smb", errors.New("no small disk can be mounted here"))
		}
		store := openLive(t, s, s.Env["SMB_FULL_SHARE"]+"/")
		_, err := store.Put(t.Context(), "big", conformance.ContentsOf("big", 6<<20), 6<<20, backends.CreateOptions{})
		if backends.KindOf(err) != backends.NoSpace {
			t.Errorf("6 MiB onto a disk of 4: %v; want kind no-space", err)
		}
		for obj, err := range store.List(t.Context(), "") {
			t.Errorf("it left %v, %v", obj, err)
		}
		if _, err := store.PutBytes(t.Context(), "small", make([]byte, 2<<20), backends.CreateOptions{}); err != nil {
			t.Errorf("the failed write left no room: %v", err)
		}
		if err := store.Delete(t.Context(), "small"); err != nil {
			t.Error(err)
		}
	})
}

// The two backends act like two processes. While writers shared one claim file with a fixed name,
// two of them won in one of some hundred rounds on a busy machine.
func TestWritersRaceForOneKey(t *testing.T) {
	eachMode(t, func(t *testing.T, s *live.Server) {
		stores := []*backends.Store{openLive(t, s, "data/race/"), openLive(t, s, "data/race/")}
		for round := range 20 {
			key := fmt.Sprintf("k%d", round)
			var won, lost atomic.Int64
			var g errgroup.Group
			for i := range 8 {
				g.Go(func() error {
					_, err := stores[i%2].PutBytes(t.Context(), key, []byte{byte(i)}, backends.CreateOptions{IfAbsent: true})
					switch {
					case err == nil:
						won.Add(1)
					case errors.Is(err, fs.ErrExist):
						lost.Add(1)
					default:
						return err
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil || won.Load() != 1 || lost.Load() != 7 {
				t.Errorf("round %d: %d won and %d lost, %v; want 1 and 7", round, won.Load(), lost.Load(), err)
			}
			if err := stores[0].Delete(t.Context(), key); err != nil {
				t.Error(err) // so that the next run finds the key free
			}
		}
		left, _ := filepath.Glob(filepath.Join(s.Env["SMB_DIR"], "race", fileshare.Temporary+"*"))
		if len(left) > 0 {
			t.Errorf("%q are left", left)
		}
	})
}

func TestClaimOfADeadOwnerIsIgnored(t *testing.T) {
	s := need(t, "plain")
	one, two := openLive(t, s, "data/claims/"), openLive(t, s, "data/claims/")
	opts := backends.CreateOptions{IfAbsent: true}
	if _, err := one.PutBytes(t.Context(), "other", nil, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A claim normally lasts as long as a commit; here the test holds it. The garbage collector
	// closes a file that is no longer referenced, which once ended this claim too early.
	raw, prefix := one.Backend()
	session, err := raw.(*Backend).pool.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, err := call(t.Context(), session, func(share *smb2.Share) (*flag, error) {
		return raise(share, claims(prefix+"k"))
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := two.PutBytes(ctx, "k", nil, opts); backends.KindOf(err) != backends.Canceled {
		t.Errorf("with a claim held by another: %v, want to wait until the context ends", err)
	}
	runtime.KeepAlive(held)
	session.Kill(errors.New("its process was killed"))
	if _, err := two.PutBytes(t.Context(), "k", nil, opts); err != nil {
		t.Errorf("with a claim that nobody holds: %v", err)
	}
	if err := two.Delete(t.Context(), "k"); err != nil {
		t.Error(err) // so that the next run finds the key free
	}
}

// Other programs change a file, as seen through the server.
func TestReadDetectsChangedFile(t *testing.T) {
	s := need(t, "plain")
	store := openLive(t, s, "data/change/")
	const size = 12 << 20
	for what, change := range map[string]func(path string) error{
		"grows": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = f.WriteString("more")
				err = errors.Join(err, f.Close())
			}
			return err
		},
		"shrinks": func(path string) error { return os.Truncate(path, size/2) },
		"changes": func(path string) error { return os.WriteFile(path, make([]byte, size), 0o666) },
	} {
		if _, err := store.PutBytes(t.Context(), what, make([]byte, size), backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		obj, err := store.Stat(t.Context(), what)
		if err != nil {
			t.Fatal(err)
		}
		changed := false
		_, err = store.ReadRange(t.Context(), obj, 0, size, writerAt(func(p []byte, off int64) (int, error) {
			if !changed && off > 0 {
				changed = true
				if err := change(filepath.Join(s.Env["SMB_DIR"], "change", what)); err != nil {
					t.Error(err)
				}
			}
			return len(p), nil
		}), nil)
		if backends.KindOf(err) != backends.Changed {
			t.Errorf("a file that %s while it is read: %v, want kind changed", what, err)
		}
	}
}

type writerAt func(p []byte, off int64) (int, error)

func (w writerAt) WriteAt(p []byte, off int64) (int, error) { return w(p, off) }

func TestDeleteLeavesNoEmptyDirs(t *testing.T) {
	s := need(t, "plain")
	store := openLive(t, s, "data/prune/")
	for _, key := range []string{"a/b/c/one", "a/two"} {
		if _, err := store.PutBytes(t.Context(), key, nil, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), "a/b/c/one"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a/b": false, "a": true} {
		if _, err := os.Stat(filepath.Join(s.Env["SMB_DIR"], "prune", name)); (err == nil) != want {
			t.Errorf("%s is there: %v (%v), want %v", name, err == nil, err, want)
		}
	}
}

func TestListingNamesWhatHasNoContent(t *testing.T) {
	s := need(t, "plain")
	store := openLive(t, s, "data/sparse/")
	if _, err := store.PutBytes(t.Context(), "a/b/one", nil, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.Env["SMB_DIR"], "sparse", "empty", "deep"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(s.Env["SMB_DIR"], "sparse", "a", "b", "up")); err != nil { // for clients a directory
		t.Fatal(err)
	}
	var skipped []string
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { skipped = append(skipped, s.Key+": "+s.What) })
	for _, err := range store.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"a/b/up/: a link to a directory above it", "empty/deep/: a directory without files"}; !slices.Equal(skipped, want) {
		t.Errorf("the list skips %q, want %q", skipped, want)
	}
}

func TestServerKillIsSurvived(t *testing.T) {
	eachMode(t, func(t *testing.T, s *live.Server) {
		store := openLive(t, s, "data/killed/")
		const size = 24 << 20
		want := conformance.ContentsOf("killed", size)
		if _, err := store.Put(t.Context(), "read", want, size, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		obj, err := store.Stat(t.Context(), "read")
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		_, err = store.ReadRange(t.Context(), obj, 0, size, writerAt(func(p []byte, off int64) (int, error) {
			if off == 8<<20 {
				s.Order(t, "away 500ms")
				time.Sleep(100 * time.Millisecond) // data in flight is lost
			}
			return got.Write(p)
		}), nil)
		if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("reading while the server is killed: %v, %d bytes of %d, right: %v", err, got.Len(), size, bytes.Equal(got.Bytes(), want.Bytes()))
		}
		// The same during a write: the earlier parts are written again.
		src := &killing{want, func() { s.Order(t, "away 500ms") }, atomic.Bool{}}
		if _, err := store.Put(t.Context(), "written", src, size, backends.CreateOptions{}); err != nil {
			t.Fatalf("writing while the server is killed: %v", err)
		}
		there, err := os.ReadFile(filepath.Join(s.Env["SMB_DIR"], "killed", "written"))
		if err != nil || !bytes.Equal(there, want.Bytes()) {
			t.Errorf("after writing while the server is killed: %v, %d bytes of %d, right: %v", err, len(there), size, bytes.Equal(there, want.Bytes()))
		}
		left, _ := filepath.Glob(filepath.Join(s.Env["SMB_DIR"], "killed", fileshare.Temporary+"*"))
		if len(left) > 0 {
			t.Errorf("%q are left", left)
		}
	})
}

// killing is a source that calls do when its last part is read.
type killing struct {
	*conformance.Contents
	do   func()
	done atomic.Bool
}

func (k *killing) ReadAt(p []byte, off int64) (int, error) {
	if off >= 20<<20 && k.done.CompareAndSwap(false, true) {
		k.do()
		time.Sleep(100 * time.Millisecond)
	}
	return k.Contents.ReadAt(p, off)
}

// hasty returns a backend with short timeouts.
func hasty(address string, getenv func(string) string) *Backend {
	set := settings{address: address, host: "127.0.0.1", share: "data", signing: true, mapped: true}
	return newBackend(&dialer{
		settings: set, opts: backends.Options{Getenv: getenv}, log: slog.New(slog.DiscardHandler),
		connectWithin: 300 * time.Millisecond, silence: 2 * time.Second,
	})
}

func TestServerOfAnotherProtocol(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 256)) // the greeting, which it rejects
			_ = conn.Close()
		}
	}()
	b := hasty(l.Addr().String(), func(string) string { return "x" })
	b.pool.dialer.connectWithin = connectWithin
	defer b.Close()
	if _, err := b.Stat(t.Context(), "x"); backends.KindOf(err) != backends.Unavailable || !strings.Contains(fmt.Sprint(err), "is it an SMB server?") {
		t.Errorf("from a server that hangs up: %v (%v); want a question of kind unavailable", err, backends.KindOf(err))
	}
}

func TestServerThatNeverResponds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := runtime.NumGoroutine()
	b := hasty(l.Addr().String(), func(name string) string { return "x" })
	start := time.Now()
	_, err = b.Stat(t.Context(), "x")
	if took := time.Since(start); backends.KindOf(err) != backends.Unavailable || !strings.Contains(fmt.Sprint(err), "does not respond") || took > 5*time.Second {
		t.Errorf("after %v: %v; want kind unavailable after 300ms", took, err)
	}
	b.Close()
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left of a connection that failed", runtime.NumGoroutine()-before)
		}
	}
}

func TestLoginRejectedIsNotRetried(t *testing.T) {
	s := need(t, "plain")
	store := openLive(t, s, "data/", "SMB_PASSWORD=wrong")
	raw, _ := store.Backend()
	for range 3 {
		if _, err := store.Stat(t.Context(), "x"); backends.KindOf(err) != backends.Permission {
			t.Errorf("Stat: %v, want kind permission", err)
		}
	}
	if until := raw.(*Backend).pool.RefusedUntil(); time.Until(until) < 15*time.Second {
		t.Errorf("the next login is tried at %v, want half a minute later", until)
	}
}

func TestCallAbandonedHarmsNoOther(t *testing.T) {
	s := need(t, "signed")
	store := openLive(t, s, "data/left/")
	const size = 6 << 20
	want := conformance.ContentsOf("left", size)
	if _, err := store.Put(t.Context(), "k", want, size, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	raw, prefix := store.Backend()
	b := raw.(*Backend)
	obj, err := b.Stat(t.Context(), prefix+"k")
	if err != nil {
		t.Fatal(err)
	}
	before := make([]*session, 0, sessions)
	for range sessions {
		x, err := b.pool.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, x)
	}
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		if body, err := b.OpenRange(ctx, obj, 0, size); err == nil {
			_, _ = io.Copy(io.Discard, body) // the context ends it at the latest
			body.Close()
		}
		_, _ = b.Stat(ctx, prefix+"k")
		if w, err := b.Create(ctx, prefix+"w", backends.CreateOptions{Size: -1}); err == nil {
			_, _ = w.Write(make([]byte, 3<<20))
			if err := w.Abort(); err != nil {
				t.Errorf("Abort: %v", err)
			}
		}
		cancel()
	}
	got, _, err := store.ReadAll(t.Context(), "k", size)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("after calls that were left: %v, right: %v", err, bytes.Equal(got, want.Bytes()))
	}
	for _, x := range before {
		if !x.Alive() {
			t.Errorf("a session ended by calls that were left: %v", x.Err())
		}
	}
	for deadline := time.Now().Add(time.Minute); len(b.extra) > 0 || openFiles(b) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d chunks and %d files are left", len(b.extra), openFiles(b))
		}
	}
}

func openFiles(b *Backend) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.handles)
}
