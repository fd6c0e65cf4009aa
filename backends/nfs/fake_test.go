package nfs

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/nfs/internal/nfs3"
	"github.com/stager-dev/stager/backends/nfs/internal/nfs4"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// openFake opens a directory of an in-memory server.
func openFake(ctx context.Context, s *nfstest.Server, directory, params string) (*backends.Store, error) {
	values, err := url.ParseQuery(params)
	if err != nil {
		return nil, err
	}
	c, err := parse(backends.Target{Host: "double", Params: values})
	if err != nil {
		return nil, err
	}
	scheme := backends.Scheme{Name: "nfs", Open: func(ctx context.Context, t backends.Target) (backends.Opened, error) {
		client := rpc.NewClient(s.Dial, c.conns, rpc.Options{})
		var tree remote.Tree
		var err error
		if c.vers == "3" {
			var root nfs3.Handle
			if root, err = nfs3.Mount(ctx, client, c.credential(), "/"); err != nil {
				return backends.Opened{}, err
			}
			tree, err = nfs3.Dial(ctx, nfs3.Config{RPC: client, Credential: c.credential(), Root: root, Slots: c.slots, BlockSize: c.block})
		} else {
			tree, err = nfs4.Dial(ctx, nfs4.Config{RPC: client, Credential: c.credential(), Slots: c.slots, BlockSize: c.block})
		}
		if err != nil {
			return backends.Opened{}, err
		}
		share, at, err := newShare(ctx, tree, t.Path, c.slots)
		if err != nil {
			return backends.Opened{}, classify("open", "", err)
		}
		return backends.Opened{Backend: share, Prefix: at}, nil
	}}
	return backends.NewRegistry(scheme).Open(ctx, "nfs://double/"+directory, backends.Options{RetryFor: time.Minute, Log: slog.New(slog.DiscardHandler)})
}

// eachFake runs a test in virtual time with both versions, against a server that has the
// directory data.
func eachFake(t *testing.T, params string, run func(t *testing.T, vers string, s *nfstest.Server, store *backends.Store)) {
	eachVersion(t, func(t *testing.T, vers string) {
		synctest.Test(t, func(t *testing.T) {
			s := nfstest.New()
			s.Mkdir("data")
			store, err := openFake(t.Context(), s, "data", vers+params)
			if err != nil {
				t.Fatal(err)
			}
			run(t, vers, s, store)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if trouble := s.Trouble(); len(trouble) > 0 {
				t.Errorf("the client broke the protocol: %q", trouble)
			}
		})
	})
}

// The conformance tests that also run against a real server, for machines without one.
func TestContractWithAFake(t *testing.T) {
	// Generated code of version 3 accepts only ASCII names, so only a real server tests version 3.
	for _, params := range []string{"vers=4.1", "vers=4.1&rsize=32KiB&slots=3&conns=1"} {
		if testing.Short() && params == "vers=4.1" {
			continue // real servers test it, too
		}
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, func(t *testing.T) *backends.Store {
				s := nfstest.New()
				s.Mkdir("data")
				store, err := openFake(t.Context(), s, "data", params)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				return store
			}, conformance.Options{})
		})
	}
}

// next scripts a fault for an operation of version 4.1, or its procedure of version 3.
func next(s *nfstest.Server, vers string, op nfsv4.NfsOpnum4, proc uint32, faults ...nfstest.Fault) {
	if vers == "vers=3" {
		s.Next3(proc, faults...)
	} else {
		s.Next(op, faults...)
	}
}

// A server that crashes before written data is durable still accepts COMMIT after its restart.
func TestWriteRepeatsDataLostByRestart(t *testing.T) {
	eachFake(t, "&rsize=4KiB", func(t *testing.T, vers string, s *nfstest.Server, store *backends.Store) {
		const size = 100_000
		want := conformance.ContentsOf("k", size).Bytes()
		next(s, vers, nfsv4.OP_COMMIT, 21, nfstest.Fault{Do: s.Restart}, nfstest.Fault{Do: s.Restart})
		if _, err := store.Put(t.Context(), "parts", conformance.ContentsOf("k", size), size, backends.CreateOptions{}); err != nil {
			t.Errorf("Put: %v", err)
		}
		next(s, vers, nfsv4.OP_WRITE, 7, nfstest.Fault{}, nfstest.Fault{}, nfstest.Fault{Do: s.Restart})
		if _, err := store.PutBytes(t.Context(), "bytes", want, backends.CreateOptions{}); err != nil {
			t.Errorf("PutBytes: %v", err)
		}
		for _, name := range []string{"parts", "bytes"} {
			if got, _ := s.ReadFile("data/" + name); string(got) != string(want) {
				t.Errorf("%s: the server has %d bytes, or other ones, want %d", name, len(got), len(want))
			}
		}
		if names := s.Names("data"); !slices.Equal(names, []string{"bytes", "parts"}) {
			t.Errorf("the directory has %q: something was left", names)
		}
	})
}

func TestStreamWithLostPartIsNotCommitted(t *testing.T) {
	eachFake(t, "&rsize=4KiB", func(t *testing.T, vers string, s *nfstest.Server, store *backends.Store) {
		b, prefix := store.Backend()
		w, err := b.Create(t.Context(), prefix+"k", backends.CreateOptions{Size: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 20_000)); err != nil {
			t.Fatal(err)
		}
		s.Restart()
		if _, err := w.Write(make([]byte, 20_000)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.Unavailable {
			t.Errorf("Commit: %v (%v), want kind unavailable", err, backends.KindOf(err))
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if names := s.Names("data"); slices.Contains(names, "k") {
			t.Errorf("the directory has %q, want no k", names)
		}
	})
}

// A handle may become invalid although the file exists: the export was moved, or the server
// renumbered its files.
func TestStaleHandleIsLookedUpAgain(t *testing.T) {
	eachFake(t, "&rsize=4KiB", func(t *testing.T, vers string, s *nfstest.Server, store *backends.Store) {
		want := conformance.ContentsOf("k", 50_000).Bytes()
		s.WriteFile("data/k", want)
		for _, status := range []nfsv4.Nfsstat4{nfsv4.NFS4ERR_STALE, nfsv4.NFS4ERR_BADHANDLE} {
			next(s, vers, nfsv4.OP_READ, 6, nfstest.Fault{}, nfstest.Fault{Status: status})
			got, _, err := store.ReadAll(t.Context(), "k", 1<<20)
			if err != nil || string(got) != string(want) {
				t.Errorf("%v: %d bytes, %v; want %d", status, len(got), err, len(want))
			}
		}
		next(s, vers, nfsv4.OP_READ, 6, nfstest.Fault{}, nfstest.Fault{Do: func() { s.WriteFile("data/k", want) }})
		if _, _, err := store.ReadAll(t.Context(), "k", 1<<20); backends.KindOf(err) != backends.Changed {
			t.Errorf("a file that was replaced while it was read: %v (%v), want kind changed", err, backends.KindOf(err))
		}
	})
}

// A writer may replace a file that has just got its name. In version 3, the one that wrote it then asked for
// the attributes of a file that was gone, and reported a failure. Version 4 asks in the same request.
func TestFileIsReplacedAsSoonAsItIsThere(t *testing.T) {
	const getattr, remove, rename = 1, 12, 14
	for name, tt := range map[string]struct {
		before uint32 // the procedure before GETATTR
		opts   backends.CreateOptions
	}{"rename": {rename, backends.CreateOptions{}}, "link": {remove, backends.CreateOptions{IfAbsent: true}}} {
		t.Run(name, func(t *testing.T) {
			s := nfstest.New()
			s.Mkdir("data")
			store, err := openFake(t.Context(), s, "data", "vers=3")
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			replace := nfstest.Fault{Do: func() { s.WriteFile("data/k", []byte("of another writer")) }}
			s.Next3(tt.before, nfstest.Fault{Do: func() { s.Next3(getattr, replace) }})
			obj, err := store.PutBytes(t.Context(), "k", []byte("mine"), tt.opts)
			if err != nil || obj.Size != 4 {
				t.Errorf("got %+v (%v), want an object of 4 bytes", obj, err)
			}
			if there, err := store.Stat(t.Context(), "k"); err != nil || there.Size != 17 || there.Version == obj.Version {
				t.Errorf("got %+v (%v), want that of the other writer, with another version than %s", there, err, obj.Version)
			}
		})
	}
}

// Version 3 caches handles of directories. A replaced directory was once taken for a removed one,
// and its files were silently missing.
func TestDirectoryIsReplaced(t *testing.T) {
	eachFake(t, "", func(t *testing.T, _ string, s *nfstest.Server, store *backends.Store) {
		s.WriteFile("data/directory/old", nil)
		if got := keys(t, store, ""); got != "directory/old" {
			t.Errorf("got %q, want the first file", got)
		}
		s.Remove("data/directory")
		s.WriteFile("data/directory/new", []byte("new"))
		if got := keys(t, store, ""); got != "directory/new" {
			t.Errorf("got %q, want the file of the directory that is there now", got)
		}
		if got, _, err := store.ReadAll(t.Context(), "directory/new", 10); string(got) != "new" || err != nil {
			t.Errorf("ReadAll: %q, %v", got, err)
		}
	})
}

// keys returns the keys of a listing.
func keys(t *testing.T, store *backends.Store, prefix string) string {
	t.Helper()
	var got []string
	for obj, err := range store.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		got = append(got, obj.Key)
	}
	return strings.Join(got, " ")
}

// skipped returns the entries that a listing does not yield, and why.
func skipped(t *testing.T, store *backends.Store) string {
	t.Helper()
	var got []string
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { got = append(got, s.Key+": "+s.What) })
	for _, err := range store.List(ctx, "") {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

func TestVersion3Delays(t *testing.T) {
	eachFake(t, "", func(t *testing.T, vers string, s *nfstest.Server, store *backends.Store) {
		s.WriteFile("data/k", []byte("x"))
		next(s, vers, nfsv4.OP_READ, 6, nfstest.Refuse(nfsv4.NFS4ERR_DELAY, nfsv4.NFS4ERR_DELAY, nfsv4.NFS4ERR_DELAY)...)
		start := time.Now()
		if _, _, err := store.ReadAll(t.Context(), "k", 10); err != nil {
			t.Error(err)
		}
		if took, want := time.Since(start), 350*time.Millisecond; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

func TestLinks(t *testing.T) {
	eachFake(t, "", func(t *testing.T, _ string, s *nfstest.Server, store *backends.Store) {
		s.WriteFile("secret/k", []byte("secret"))
		s.WriteFile("data/v1/a", []byte("a"))
		s.WriteFile("data/v1/b0", []byte("b0"))
		s.Symlink("v1", "data/current")
		s.Symlink("../current/a", "data/v1/again")
		s.Symlink("current/a", "data/one")
		s.Symlink("nothing", "data/nowhere")
		s.Symlink("x/y", "data/x")
		s.Symlink("..", "data/v1/up")
		s.Mkdir("data/empty")
		const want = "current/a current/again current/b0 one v1/a v1/again v1/b0"
		if got := keys(t, store, ""); got != want {
			t.Errorf("List: %q, want %q", got, want)
		}
		if got, want := skipped(t, store), "current/up/: a link to a directory above it empty/: a directory without files nowhere: a link that leads nowhere v1/up/: a link to a directory above it x: a link that leads nowhere"; got != want {
			t.Errorf("List skips %q, want %q", got, want)
		}
		if got := keys(t, store, "current/a"); got != "current/a current/again" {
			t.Errorf("List of a prefix behind a link: %q", got)
		}
		for key, want := range map[string]string{"one": "a", "current/b0": "b0", "current/again": "a", "v1/up/current/a": "a"} {
			for range 2 { // the second time from the cache
				if got, _, err := store.ReadAll(t.Context(), key, 10); string(got) != want || err != nil {
					t.Errorf("ReadAll(%q) = %q, %v; want %q", key, got, err, want)
				}
			}
		}
		for _, key := range []string{"nowhere", "x", "x/y"} {
			if _, err := store.Stat(t.Context(), key); backends.KindOf(err) != backends.NotExist {
				t.Errorf("Stat(%q): %v, want kind not-exist", key, err)
			}
		}
		if _, err := store.PutBytes(t.Context(), "current/c", []byte("c"), backends.CreateOptions{}); err != nil {
			t.Errorf("PutBytes behind a link: %v", err)
		}
		if got, _ := s.ReadFile("data/v1/c"); string(got) != "c" {
			t.Errorf("the directory that the link leads to has %q, want c", s.Names("data/v1"))
		}
		if err := store.Delete(t.Context(), "one"); err != nil || slices.Contains(s.Names("data"), "one") {
			t.Errorf("Delete of a link: %v, the directory has %q", err, s.Names("data"))
		}
		if _, ok := s.ReadFile("data/v1/a"); !ok {
			t.Error("Delete of a link removed the file")
		}
		for link, to := range map[string]string{"out": "../secret", "absolute": "/data/v1/a", "root": "../../.."} {
			s.Symlink(to, "data/"+link)
			for _, key := range []string{link, link + "/k"} {
				_, err := store.Stat(t.Context(), key)
				if backends.KindOf(err) != backends.Unsupported || !strings.Contains(fmt.Sprint(err), "outside of the URL's directory") {
					t.Errorf("Stat(%q): %v, want kind unsupported", key, err)
				}
			}
			var last error
			for _, err := range store.List(t.Context(), "") {
				last = err
			}
			if backends.KindOf(last) != backends.Unsupported {
				t.Errorf("List with a link to %q: %v, want kind unsupported", to, last)
			}
			s.Remove("data/" + link)
		}
	})
}

func TestStoreBehindALink(t *testing.T) {
	eachVersion(t, func(t *testing.T, vers string) {
		s := nfstest.New()
		s.WriteFile("sets/v7/k", []byte("x"))
		s.Symlink("v7", "sets/current")
		store, err := openFake(t.Context(), s, "sets/current", vers)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if got := keys(t, store, ""); got != "k" {
			t.Errorf("List: %q, want k", got)
		}
	})
}

func TestGroupsAreSent(t *testing.T) {
	eachFake(t, "&uid=7&gid=8&gids=9,10", func(t *testing.T, _ string, s *nfstest.Server, store *backends.Store) {
		_, _ = store.Stat(t.Context(), "k") // any request
		if got := s.Credential(); got.Uid != 7 || got.Gid != 8 || !slices.Equal(got.Gids, []uint32{9, 10}) {
			t.Errorf("the server was told %+v, want 7, 8 and 9, 10", got)
		}
	})
}
