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
	// oneStream is up to which size an object is read as a single stream: cutting it
	// would cost more requests than it saves time.
	oneStream = 64 << 20
	// Larger ones are cut to the store's liking within these bounds.
	minPiece, maxPiece = 16 << 20, 32 << 20
	// manyStreams read one object unless it is said otherwise; more make a single file
	// contended, and the rest of the connections serve other objects.
	manyStreams = 8
)

// Options say how an object is fetched. The zero value works.
type Options struct {
	Verify  Verify
	Streams int // requests at once for one object; 0: what suits, at most 8
	// Piece is how long the ranges are that an object is cut into, in bytes; 0: what
	// suits. A store whose checksums cannot be combined has its own way.
	Piece int64
	// Arrived is told the number of bytes whenever some were written, from several
	// goroutines at once. May be nil.
	Arrived func(n int64)
}

// Object brings what is missing of obj into in, checks it, and returns the checksum
// that the store and the bytes agree on; the zero value when the store has none, so
// that only the size is known to be right. The caller publishes.
//
// An error of kind Changed or NotExist says that this version is no longer there.
// After one of kind Corrupt the caller discards in, since nobody knows which bytes
// are wrong; after any other, in may be resumed. Failures of the disk are of type
// *backends.LocalError, or of kind NoSpace.
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

// transfer is one object on its way, cut into pieces that any goroutines fetch in
// any order, each once. After all of them comes verify.
type transfer struct {
	store     *backends.Store
	obj       backends.Object
	in        *disk.Incoming
	opts      Options
	pieces    []disk.Range       // what was missing at the beginning, ascending
	algorithm backends.Algorithm // the pieces are summed by it; "" when they are not
	head      *listingOverlap    // counts the space that is taken; nil: nobody asks, or it was taken before

	mu       sync.Mutex // guards all below
	reported backends.Checksum
	sums     [][]byte // of the pieces
}

func newTransfer(store *backends.Store, obj backends.Object, in *disk.Incoming, opts Options) *transfer {
	t := &transfer{store: store, obj: obj, in: in, opts: opts, reported: obj.Sum}
	facts := store.Capabilities()
	missing := in.Missing()
	if opts.Piece > 0 && (facts.Checksum == "" || facts.Checksum.Combinable()) {
		t.pieces = slice(missing, opts.Piece)
	} else {
		t.pieces = cut(missing, obj.Size, facts.PartSize)
	}
	if opts.Verify == VerifySize || len(missing) != 1 || missing[0].Len != obj.Size {
		return t // bytes of an earlier process are summed from the disk
	}
	t.algorithm = facts.Checksum
	if !t.reported.IsZero() {
		t.algorithm = t.reported.Algorithm
	}
	if t.algorithm.New() == nil || len(t.pieces) > 1 && !t.algorithm.Combinable() {
		t.algorithm = ""
	}
	if t.algorithm != "" {
		t.sums = make([][]byte, len(t.pieces))
	}
	return t
}

// cut divides the stretches of a large object at multiples of a piece.
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

// fetch brings the i-th piece.
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
	told, err := t.store.ReadRange(ctx, t.obj, t.pieces[i].Off, t.pieces[i].Len, dst, h)
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
		t.reported = told
	}
	if h != nil {
		t.sums[i] = h.Sum(nil)
	}
	return nil
}

func (t *transfer) fail(kind backends.Kind, err error) error {
	return &backends.Error{Op: "read", Store: t.store.Name(), Key: t.obj.Key, Kind: kind, Err: err}
}

// counted tells of what is written.
type counted struct {
	io.WriterAt
	arrived func(int64)
}

func (c *counted) WriteAt(p []byte, off int64) (int, error) {
	n, err := c.WriterAt.WriteAt(p, off)
	c.arrived(int64(n))
	return n, err
}

// Reads returns by how many requests an object of so many bytes is read from a store whose parts
// have partSize bytes, when nothing fails and none is repeated.
func Reads(size, partSize int64) int64 {
	if size <= oneStream {
		return 1
	}
	piece := min(max(partSize, minPiece), maxPiece)
	return (size + piece - 1) / piece
}
