package conformance_test

import (
	"context"
	"io"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// Each of these stores loses the object for a moment in one kind of call.
func TestReplacementsFindsGaps(t *testing.T) {
	for _, blind := range []string{"", "stat", "read", "list", "create"} {
		b := mem.New()
		g := &gap{Backend: struct{ backends.Backend }{b}, blind: blind}
		r := &recorder{ctx: t.Context(), failed: make(map[string]bool)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conformance.Replacements(r, backends.NewStore(g, "mem://test", backends.Options{}), backends.NewStore(g, "mem://test", backends.Options{}))
		}()
		<-done
		if got, want := r.failed[""], blind != ""; got != want {
			t.Errorf("a store that has a gap in %q fails: %v, want %v", blind, got, want)
		}
	}
}

// gap is a store that finds nothing in one kind of call while a commit is under way.
type gap struct {
	backends.Backend
	blind string

	commits atomic.Int64 // that are under way
	met     atomic.Bool  // a call was made meanwhile
}

func (g *gap) missing(op, key string) error {
	if op != g.blind || g.commits.Load() == 0 {
		return nil
	}
	g.met.Store(true)
	return backends.Errorf(backends.NotExist, op, key, "there is no such file")
}

func (g *gap) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := g.missing("stat", key); err != nil {
		return backends.Object{}, err
	}
	return g.Backend.Stat(ctx, key)
}

func (g *gap) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := g.missing("read", obj.Key); err != nil {
		return nil, err
	}
	return g.Backend.OpenRange(ctx, obj, off, n)
}

func (g *gap) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	if g.missing("list", prefix) != nil {
		return func(func(backends.Object, error) bool) {}
	}
	return g.Backend.List(ctx, prefix)
}

func (g *gap) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if opts.IfAbsent && g.missing("create", key) != nil {
		opts.IfAbsent = false
	}
	w, err := g.Backend.Create(ctx, key, opts)
	if err != nil || opts.IfAbsent || opts.IfVersion != "" {
		return w, err
	}
	return gapWriter{w, g}, nil
}

type gapWriter struct {
	backends.Writer
	g *gap
}

// Commit waits until a call falls into the gap, once there is an object.
func (w gapWriter) Commit(ctx context.Context) (backends.Object, error) {
	if _, err := w.g.Backend.Stat(ctx, "k"); err == nil && w.g.blind != "" {
		w.g.commits.Add(1)
		defer w.g.commits.Add(-1)
		for !w.g.met.Load() {
			runtime.Gosched()
		}
	}
	return w.Writer.Commit(ctx)
}
