package conformance

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Sweeps checks that a sweep finds and removes what killed writers left, and spares live writers.
// Both stores are of the same empty directory. killed is closed with its writes in progress.
func Sweeps(t TB, killed, store *backends.Store) {
	t.Helper()
	size := int64(2 << 20)
	if b, _ := killed.Backend(); isParted(b) {
		size = 2 * killed.Capabilities().PartLength(64<<20)
	}
	for _, key := range []string{"step-1/data/a/x", "step-1/y", "other/z"} {
		startPart(t, killed, key, size)
	}
	live := startPart(t, store, "step-1/data/live/x", size)
	if err := killed.Close(); err != nil {
		t.Errorf("closing the store of the writers that were killed: %v", err)
	}
	if left := orphans(t, store, "step-", false); len(left) != 3 {
		t.Errorf("there are remains %v, want those of two that were killed and one that lives", left)
	}
	// A server may detect the lost client a little later.
	var left []string
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if orphans(t, store, "step-", true); t.Context().Err() != nil {
			return
		}
		if left = orphans(t, store, "step-", false); len(left) == 1 {
			break
		}
	}
	if len(left) != 1 || !strings.HasPrefix(left[0], "step-1/data/live/") {
		t.Errorf("after the sweep there are %q, want that of the writer that lives", left)
	}
	if left := orphans(t, store, "", false); len(left) != 2 || !strings.HasPrefix(left[0], "other/") {
		t.Errorf("a sweep of one prefix leaves %q, want also what is outside of it", left)
	}
	live.finish(t, store)
	orphans(t, store, "", true)
	if left := orphans(t, store, "", false); len(left) > 0 {
		t.Errorf("at the end there are %q, want nothing", left)
	}
}

// Resumes checks that the upload of a large object continues where a killed writer left it, with
// exactly the bytes of its source. killed is closed with its write in progress.
func Resumes(t TB, killed, store *backends.Store) {
	t.Helper()
	size := 4 * killed.Capabilities().PartLength(64<<20)
	ids := make(map[string]string) // by key
	half := func(key string) (token string) {
		b, prefix := killed.Backend()
		w, err := b.(backends.PartCreator).CreateParts(t.Context(), prefix+key, backends.CreateOptions{Size: size, Begun: func(id, stated string) { ids[key], token = id, stated }})
		for _, off := range []int64{0, size / 2} {
			if err == nil {
				err = w.WritePart(t.Context(), off, backends.NewPart(ContentsOf(key, size), off, size/4))
			}
		}
		if err == nil {
			err = w.Abort() // keeps the parts
		}
		if err != nil || token == "" {
			t.Fatalf("beginning %q: token %q, %v", key, token, err)
		}
		return token
	}
	tokens := []string{half("same"), half("changed"), half("swept"), "a token without an owner"}
	if err := killed.Close(); err != nil {
		t.Errorf("closing the store of the writer that was killed: %v", err)
	}
	err := store.Sweep(t.Context(), "swept", func(left backends.Orphan) bool {
		if left.ID != ids["swept"] || left.ID == "" {
			t.Errorf("the sweep reports the ID %q, and Begun reported %q", left.ID, ids["swept"])
		}
		return true
	})
	if err != nil {
		t.Errorf("a sweep: %v", err)
	}
	for i, tt := range []struct {
		key, seed string
		sent      int64
	}{{"same", "same", size / 2}, {"changed", "other", size}, {"swept", "swept", size}, {"unknown", "unknown", size}} {
		src := &counted{ReaderAt: ContentsOf(tt.seed, size)}
		begun := 0
		obj, err := store.Put(t.Context(), tt.key, src, size, backends.CreateOptions{Resume: tokens[i], Begun: func(string, string) { begun++ }})
		if err != nil || begun != 1 {
			t.Errorf("resuming %q: %v, and %d tokens were reported, want 1", tt.key, err, begun)
			continue
		}
		if got := src.n.Load(); got != tt.sent {
			t.Errorf("%q: %d bytes were sent, want %d of %d", tt.key, got, tt.sent, size)
		}
		c := &check{TB: t, ctx: t.Context(), store: store}
		c.wantContents(obj, tt.seed, size)
	}
	if left := orphans(t, store, "", false); len(left) > 0 {
		t.Errorf("at the end there are %q, want nothing", left)
	}
}

// counted is a source that counts the bytes sent from it.
type counted struct {
	io.ReaderAt
	n atomic.Int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Uncounted() io.ReaderAt { return c.ReaderAt }

func isParted(b backends.Backend) bool {
	_, ok := b.(backends.PartCreator)
	return ok
}

// begun is a write with one part sent.
type begun struct {
	backends.PartWriter
	key  string
	size int64
}

func startPart(t TB, s *backends.Store, key string, size int64) begun {
	t.Helper()
	b, prefix := s.Backend()
	creator, ok := b.(backends.PartCreator)
	if !ok {
		creator = streams{b}
	}
	w, err := creator.CreateParts(t.Context(), prefix+key, backends.CreateOptions{Size: size})
	if err == nil {
		err = w.WritePart(t.Context(), 0, backends.NewPart(ContentsOf(key, size), 0, size/2))
	}
	if err != nil {
		t.Fatalf("beginning %q: %v", key, err)
	}
	return begun{w, key, size}
}

// finish sends the other part.
func (b begun) finish(t TB, s *backends.Store) {
	t.Helper()
	err := b.WritePart(t.Context(), b.size/2, backends.NewPart(ContentsOf(b.key, b.size), b.size/2, b.size/2))
	if err == nil {
		_, err = b.Commit(t.Context())
	}
	if err != nil {
		t.Fatalf("a writer that a sweep left alone: %v", err)
	}
	c := &check{TB: t, ctx: t.Context(), store: s}
	c.wantContents(c.stat(b.key), b.key, b.size)
}

// orphans sweeps, sparing the live writer, and returns the keys passed to over.
func orphans(t TB, s *backends.Store, prefix string, over bool) (keys []string) {
	t.Helper()
	err := s.Sweep(t.Context(), prefix, func(r backends.Orphan) bool {
		keys = append(keys, r.Key)
		if age := time.Since(r.Touched); age < -time.Hour || age > time.Hour {
			t.Errorf("%q was touched at %v, want a moment ago", r.Key, r.Touched)
		}
		return over && !strings.HasPrefix(r.Key, "step-1/data/live/")
	})
	if err != nil {
		t.Errorf("a sweep of %q: %v", prefix, err)
	}
	slices.Sort(keys)
	return keys
}

// streams adapts a backend without PartCreator, for parts written in order.
type streams struct{ backends.Backend }

func (s streams) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	w, err := s.Create(ctx, key, opts)
	return streamed{w}, err
}

type streamed struct{ backends.Writer }

func (s streamed) WritePart(_ context.Context, _ int64, src *backends.Part) error {
	_, err := io.Copy(s.Writer, src.Reader())
	return err
}
