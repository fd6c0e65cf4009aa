package conformance_test

import (
	"context"
	"io"
	"iter"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// recorder runs checks outside a test, like a command, and records which fail.
type recorder struct {
	ctx     context.Context
	name    string
	failed  map[string]bool
	cleanup []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Errorf(string, ...any)    { r.failed[r.name] = true }
func (r *recorder) Fatalf(string, ...any)    { r.failed[r.name] = true; runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)     { runtime.Goexit() }

func (r *recorder) Run(name string, f func(*recorder)) bool {
	sub := &recorder{ctx: r.ctx, name: name, failed: r.failed}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, c := range slices.Backward(sub.cleanup) {
				c()
			}
		}()
		f(sub)
	}()
	<-done
	return !r.failed[name]
}

// A contract is only worth what it detects: each of these stores violates one guarantee.
func TestContractFindsBrokenStores(t *testing.T) {
	for _, tt := range []struct {
		what  string
		store func(*mem.Backend) backends.Backend
		check string // the check that must fail
	}{
		{"a whole store", func(m *mem.Backend) backends.Backend { return m }, ""},
		{"reads any version", func(m *mem.Backend) backends.Backend { return unpinned{m} }, "a version that was replaced is rejected"},
		{"reads any version between ranges", func(m *mem.Backend) backends.Backend { return unpinned{m} }, "a change between two ranges is detected"},
		{"ends streams early and silently", func(m *mem.Backend) backends.Backend { return early{m} }, "a range outside the object is an error"},
		{"lists directories, not keys, in order", func(m *mem.Backend) backends.Backend { return byDir{m} }, "a listing ascends and ends at its prefix"},
		{"replaces what must be absent", func(m *mem.Backend) backends.Backend { return careless{m} }, "an existing key is kept, if requested"},
		{"lets eight win", func(m *mem.Backend) backends.Backend { return careless{m} }, "of eight writers of a free key one wins"},
		{"replaces any version", func(m *mem.Backend) backends.Backend { return unguarded{m} }, conformance.VersionKept},
		{"lets eight replace a version", func(m *mem.Backend) backends.Backend { return unguarded{m} }, conformance.OneReplaces},
		{"tells wrong sums", func(m *mem.Backend) backends.Backend { return liar{m} }, "objects of all sizes round-trip"},
		{"does not hear of contexts", func(m *mem.Backend) backends.Backend { return deaf{m} }, "a read can be cancelled"},
	} {
		synctest.Test(t, func(t *testing.T) { // for the pauses between retries
			r := &recorder{ctx: t.Context(), failed: make(map[string]bool)}
			conformance.Run(r, func(*recorder) *backends.Store {
				m := mem.NewWith(backends.Capabilities{Parallelism: 4, PartSize: 64 << 10, Checksum: backends.CRC32C})
				return backends.NewStore(tt.store(m), "mem://test", backends.Options{})
			}, conformance.Options{MaxSize: 1 << 20, Many: 50})
			if tt.check != "" && !r.failed[tt.check] {
				t.Errorf("a store that %s passes %q; what failed: %v", tt.what, tt.check, r.failed)
			}
			if tt.check == "" && len(r.failed) > 0 {
				t.Errorf("%s fails %v", tt.what, r.failed)
			}
		})
	}
}

type unpinned struct{ backends.Backend }

func (b unpinned) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	obj.Version = ""
	return b.Backend.OpenRange(ctx, obj, off, n)
}

type early struct{ backends.Backend }

func (b early) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	return b.Backend.OpenRange(ctx, obj, off, min(n, max(obj.Size-off, 0)))
}

type byDir struct{ backends.Backend }

func (b byDir) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		var objs []backends.Object
		for obj, err := range b.Backend.List(ctx, prefix) {
			if err != nil {
				yield(obj, err)
				return
			}
			objs = append(objs, obj)
		}
		slices.SortFunc(objs, func(a, b backends.Object) int {
			return slices.Compare(directories(a.Key), directories(b.Key))
		})
		for _, obj := range objs {
			if !yield(obj, nil) {
				return
			}
		}
	}
}

// directories returns a sort key in which slashes precede all other bytes.
func directories(key string) []byte {
	p := []byte(key)
	for i := range p {
		if p[i] == '/' {
			p[i] = 0
		}
	}
	return p
}

type careless struct{ backends.Backend }

func (b careless) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	opts.IfAbsent = false
	return b.Backend.Create(ctx, key, opts)
}

// unguarded ignores IfVersion.
type unguarded struct{ backends.Backend }

func (b unguarded) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	opts.IfVersion = ""
	return b.Backend.Create(ctx, key, opts)
}

type liar struct{ backends.Backend }

func (b liar) Stat(ctx context.Context, key string) (backends.Object, error) {
	obj, err := b.Backend.Stat(ctx, key)
	obj.Sum = backends.Checksum{Algorithm: backends.CRC32C, Value: "01234567"}
	return obj, err
}

type deaf struct{ backends.Backend }

func (b deaf) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	return b.Backend.OpenRange(context.WithoutCancel(ctx), obj, off, n)
}
