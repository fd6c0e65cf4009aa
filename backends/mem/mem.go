package mem

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// Backend is a store in memory. All methods are safe for concurrent use.
type Backend struct {
	capabilities backends.Capabilities

	mu      sync.Mutex // guards the fields below
	objects map[string]*object
	keys    []string // of objects, ascending; nil if outdated
	changes int      // number of writes; versions are its values
	writers int      // writers neither committed nor aborted
}

var (
	_ backends.Backend     = (*Backend)(nil)
	_ backends.PartCreator = (*Backend)(nil)
)

// object is one version of a key. It is immutable.
type object struct {
	meta     backends.Object // without the Sum
	contents io.ReaderAt
	sum      func() backends.Checksum
}

// New returns an empty store with parts of 1 MiB.
func New() *Backend {
	return NewWith(backends.Capabilities{Parallelism: 8, PartSize: 1 << 20, Checksum: backends.CRC64NVME})
}

// NewWith returns an empty store with the Parallelism, PartSize (0: 1 MiB), OneRequest and Checksum of capabilities.
// The other guarantees are always on.
func NewWith(capabilities backends.Capabilities) *Backend {
	if capabilities.PartSize <= 0 {
		capabilities.PartSize = 1 << 20
	}
	capabilities.AtomicReplace, capabilities.ConditionalCreate, capabilities.PinnedReads = true, true, true
	capabilities.Guard = backends.GuardServer
	return &Backend{capabilities: capabilities, objects: make(map[string]*object)}
}

// Put stores an object directly, retains data, and returns what Stat would.
func (b *Backend) Put(key string, data []byte) backends.Object {
	return b.put(key, b.stored(data))
}

// Generate stores an object of size bytes that takes no memory. Its bytes are
// conformance.ContentsOf(key, size).
func (b *Backend) Generate(key string, size int64) backends.Object {
	return b.put(key, b.generated(conformance.ContentsOf(key, size)))
}

// stored returns an object with the given bytes.
func (b *Backend) stored(data []byte) *object {
	return &object{
		meta: backends.Object{Size: int64(len(data))}, contents: readerAt(data),
		sum: func() backends.Checksum {
			h := b.capabilities.Checksum.New()
			if h == nil {
				return backends.Checksum{}
			}
			h.Write(data)
			return backends.SumOf(b.capabilities.Checksum, h)
		},
	}
}

// generated returns an object whose bytes are computed on each read.
func (b *Backend) generated(c *conformance.Contents) *object {
	return &object{
		meta: backends.Object{Size: c.Size()}, contents: c,
		sum: func() backends.Checksum {
			if b.capabilities.Checksum == "" {
				return backends.Checksum{}
			}
			return c.Sum(b.capabilities.Checksum)
		},
	}
}

// Get returns a copy of an object's bytes. The bool reports whether it exists.
func (b *Backend) Get(key string) ([]byte, bool) {
	b.mu.Lock()
	o, ok := b.objects[key]
	b.mu.Unlock()
	if !ok {
		return nil, false
	}
	p := make([]byte, o.meta.Size)
	_, _ = o.contents.ReadAt(p, 0) // reading memory cannot fail
	return p, true
}

// Keys returns the keys of all objects, ascending.
func (b *Backend) Keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sortedLocked())
}

// Writers returns how many writers were neither committed nor aborted. Tests use it to detect
// leaks.
func (b *Backend) Writers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writers
}

// Scheme opens this store as mem://any/path, for tests that start from a URL.
func (b *Backend) Scheme() backends.Scheme {
	return backends.Scheme{
		Name: "mem", Summary: "memory of the test", Example: "mem://test/path",
		Open: func(_ context.Context, t backends.Target) (backends.Opened, error) {
			return backends.Opened{Backend: b, Prefix: strings.Trim(t.Path, "/")}, nil
		},
	}
}

// Capabilities implements backends.Backend.
func (b *Backend) Capabilities() backends.Capabilities { return b.capabilities }

// Close implements backends.Backend. The objects remain.
func (b *Backend) Close() error { return nil }

// List implements backends.Source. It omits keys deleted before their turn and may miss keys
// created meanwhile.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		b.mu.Lock()
		keys := b.sortedLocked()
		b.mu.Unlock()
		for _, key := range keys[sort.SearchStrings(keys, prefix):] {
			if !strings.HasPrefix(key, prefix) {
				break
			}
			if err := ended(ctx, "list", prefix); err != nil {
				yield(backends.Object{}, err)
				return
			}
			b.mu.Lock()
			o, ok := b.objects[key]
			b.mu.Unlock()
			if !ok {
				backends.Skip(ctx, backends.Skipped{Key: key, What: "an object", Vanished: true})
				continue
			}
			if !yield(o.meta, nil) {
				return
			}
		}
		if err := ended(ctx, "list", prefix); err != nil {
			yield(backends.Object{}, err)
		}
	}
}

// sortedLocked returns a slice that must not be modified.
func (b *Backend) sortedLocked() []string {
	if b.keys == nil {
		b.keys = slices.Sorted(maps.Keys(b.objects))
	}
	return b.keys
}

// Stat implements backends.Source.
func (b *Backend) Stat(ctx context.Context, key string) (backends.Object, error) {
	o, err := b.find(ctx, "stat", key)
	if err != nil {
		return backends.Object{}, err
	}
	return o.described(), nil
}

func (o *object) described() backends.Object {
	obj := o.meta
	obj.Sum = o.sum()
	return obj
}

func (b *Backend) find(ctx context.Context, op, key string) (*object, error) {
	if err := ended(ctx, op, key); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return nil, backends.Errorf(backends.NotExist, op, key, "no such object")
	}
	return o, nil
}

// OpenRange implements backends.Source. The reader keeps reading its version even if the key is
// replaced or deleted.
func (b *Backend) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	o, err := b.find(ctx, "read", obj.Key)
	if err != nil {
		return nil, err
	}
	if obj.Version != "" && obj.Version != o.meta.Version {
		return nil, backends.Errorf(backends.Changed, "read", obj.Key,
			"the object changed after it was listed, from version %s to %s", obj.Version, o.meta.Version)
	}
	if off < 0 || off > o.meta.Size {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key,
			"byte %d is outside the object of %d bytes", off, o.meta.Size)
	}
	left := o.meta.Size - off
	r := &reader{ctx: ctx, object: o, from: io.NewSectionReader(o.contents, off, left)}
	if n > left {
		r.short = true
	} else if n >= 0 {
		r.from = io.NewSectionReader(o.contents, off, n)
	}
	return r, nil
}

type reader struct {
	ctx    context.Context // the context of OpenRange applies to reads
	object *object
	from   *io.SectionReader
	short  bool // the range exceeds the object
	closed bool
}

var _ backends.ChecksumReader = (*reader)(nil)

func (r *reader) Read(p []byte) (int, error) {
	if r.closed {
		return 0, backends.Errorf(backends.Invalid, "read", r.object.meta.Key, "the reader is closed")
	}
	if err := ended(r.ctx, "read", r.object.meta.Key); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	if r.short && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (r *reader) Close() error {
	r.closed = true
	return nil
}

func (r *reader) ObjectChecksum() backends.Checksum { return r.object.sum() }

// Delete implements backends.Sink.
func (b *Backend) Delete(ctx context.Context, key string) error {
	if err := ended(ctx, "delete", key); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.objects[key]; ok {
		delete(b.objects, key)
		b.keys = nil
	}
	return nil
}

func (b *Backend) put(key string, o *object) backends.Object {
	b.mu.Lock()
	o = b.putLocked(key, o)
	b.mu.Unlock()
	return o.described()
}

func (b *Backend) putLocked(key string, o *object) *object {
	b.changes++
	o.meta.Key, o.meta.ModTime = key, time.Now()
	o.meta.Version = backends.Version(strconv.Itoa(b.changes))
	o.sum = sync.OnceValue(o.sum)
	if _, ok := b.objects[key]; !ok {
		b.keys = nil
	}
	b.objects[key] = o
	return o
}

// ended returns an error of kind Canceled if ctx is done.
func ended(ctx context.Context, op, key string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.Canceled, Err: context.Cause(ctx)}
}

// readerAt implements io.ReaderAt on a slice.
type readerAt []byte

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(r)) {
		return 0, io.EOF
	}
	n := copy(p, r[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
