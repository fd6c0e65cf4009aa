package download

import (
	"context"
	"errors"
	"hash"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

const (
	// Objects up to oneStream bytes are read as a single stream: cutting them would cost more
	// requests than it saves time.
	oneStream = 64 << 20
	// Larger objects are cut as suits the store, within these bounds.
	minPiece, maxPiece = 16 << 20, 32 << 20
	// By default manyStreams requests read one object. More would contend for a single file, and
	// the other connections serve other objects.
	manyStreams = 8
)

// Options configure how an object is fetched. The zero value works.
type Options struct {
	Verify  Verify
	Streams int // concurrent requests for one object; 0: automatic, at most 8
	// Piece is the length of the ranges of an object, in bytes; 0: automatic. It is ignored if the
	// store's checksums cannot be combined.
	Piece int64
	// Arrived is called with the number of bytes after each write, from several goroutines
	// concurrently. May be nil.
	Arrived func(n int64)
}

// Object fetches the missing part of obj into in, verifies it, and returns the checksum that the
// store and the bytes agree on. The zero value means that the store has no checksum, so that only
// the size is verified. The caller publishes the file.
//
// An error of kind Changed or NotExist means that this version no longer exists. After an error of
// kind Corrupt the caller must discard in, since it is unknown which bytes are wrong; after any
// other error, in may be resumed. Failures of the disk have type *backends.LocalError, or kind
// NoSpace.
func Object(ctx context.Context, store *backends.Store, obj backends.Object, in *disk.Incoming, opts Options) (backends.Checksum, error) {
	if err := opts.Verify.check(); err != nil {
		return backends.Checksum{}, err
	}
	t := newTransfer(store, obj, in, opts)
	streams := opts.Streams
	if streams <= 0 {
		streams = min(manyStreams, store.Connections())
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(streams)
	for i := range t.pieces {
		g.Go(func() error { return t.fetch(gctx, i) })
	}
	if err := g.Wait(); err != nil {
		return backends.Checksum{}, err
	}
	return t.verify(ctx)
}

// transfer is one object under way, cut into pieces. Goroutines fetch the pieces in any order, each
// once, and then call verify.
type transfer struct {
	store     *backends.Store
	obj       backends.Object
	in        *disk.Incoming
	opts      Options
	pieces    []disk.Range       // ranges that were missing at the beginning, ascending
	algorithm backends.Algorithm // checksum algorithm of the pieces; "" if there is none
	head      *listingOverlap    // accounts for disk space; nil: not needed, or already accounted for

	mu       sync.Mutex // guards all below
	reported backends.Checksum
	sums     [][]byte // of the pieces
}

func newTransfer(store *backends.Store, obj backends.Object, in *disk.Incoming, opts Options) *transfer {
	t := &transfer{store: store, obj: obj, in: in, opts: opts, reported: obj.Sum}
	capabilities := store.Capabilities()
	missing := in.Missing()
	switch {
	case obj.Whole:
		t.pieces = missing
	case opts.Piece > 0 && (capabilities.Checksum == "" || capabilities.Checksum.Combinable()):
		t.pieces = slice(missing, opts.Piece)
	default:
		t.pieces = cut(missing, obj.Size, capabilities.PartSize)
	}
	if opts.Verify == VerifySize || len(missing) != 1 || missing[0].Len != obj.Size {
		return t // for bytes of an earlier process the checksum is read from disk
	}
	t.algorithm = capabilities.Checksum
	if !t.reported.IsZero() {
		t.algorithm = t.reported.Algorithm
	}
	if t.algorithm.Size() == 0 || len(t.pieces) > 1 && !t.algorithm.Combinable() {
		t.algorithm = ""
	}
	if t.algorithm != "" {
		t.sums = make([][]byte, len(t.pieces))
	}
	return t
}

// cut divides the missing ranges of a large object at multiples of piece.
func cut(missing []disk.Range, size, piece int64) (pieces []disk.Range) {
	if size <= oneStream {
		return missing
	}
	return slice(missing, min(max(piece, minPiece), maxPiece))
}

func slice(missing []disk.Range, piece int64) (pieces []disk.Range) {
	for _, r := range missing {
		for off := r.Off; off < r.End(); {
			end := min(off-off%piece+piece, r.End())
			pieces = append(pieces, disk.Range{Off: off, Len: end - off})
			off = end
		}
	}
	return pieces
}

// fetch fetches the i-th piece.
func (t *transfer) fetch(ctx context.Context, i int) error {
	var h hash.Hash
	if t.algorithm != "" {
		h = t.algorithm.New()
	}
	var dst io.WriterAt = t.in
	if t.head != nil {
		dst = reservingWriter{dst, t.head}
	}
	if t.opts.Arrived != nil {
		dst = &counted{dst, t.opts.Arrived}
	}
	stated, err := t.store.ReadRange(ctx, t.obj, t.pieces[i].Off, t.pieces[i].Len, dst, h)
	var broken *backends.LocalError
	if errors.As(err, &broken) {
		return local(t.obj.Key, err)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reported.IsZero() {
		t.reported = stated
	}
	if h != nil {
		t.sums[i] = h.Sum(nil)
	}
	return nil
}

func (t *transfer) fail(kind backends.Kind, err error) error {
	return &backends.Error{Op: "read", Store: t.store.Name(), Key: t.obj.Key, Kind: kind, Err: err}
}

// counted reports the number of bytes written.
type counted struct {
	io.WriterAt
	arrived func(int64)
}

func (c *counted) WriteAt(p []byte, off int64) (int, error) {
	n, err := c.WriterAt.WriteAt(p, off)
	c.arrived(int64(n))
	return n, err
}

// Reads returns the number of requests that read an object of size bytes from a store with parts of
// partSize bytes, if none fails or is repeated.
func Reads(size, partSize int64) int64 {
	if size <= oneStream {
		return 1
	}
	piece := min(max(partSize, minPiece), maxPiece)
	return (size + piece - 1) / piece
}
