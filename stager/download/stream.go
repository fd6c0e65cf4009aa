package download

import (
	"context"
	"hash"
	"io"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/readahead"
)

const (
	// streamPiece is the length of the ranges of a stream, and streamAhead how many of them are
	// being fetched or wait for the reader.
	streamPiece = 2 << 20
	streamAhead = 4
)

// stream reads an object from its first byte to its last, in order, once. It fetches ranges
// concurrently and buffers them in memory:
//
//	free buffers ─ produce ─ fetch, fetch, … ─ readahead.Queue ─ Read ─ checksum ─ free buffers
//
// A range that has arrived uses no connection, so a slow reader never blocks the connections of
// others.
type stream struct {
	store   *backends.Store
	obj     backends.Object
	arrived func(int64)
	pieces  *readahead.Queue[streamed]
	free    chan []byte

	// The fields below belong to the reader.
	begun     bool
	now       []byte // the current piece
	rest      []byte
	err       error
	stated    backends.Checksum
	algorithm backends.Algorithm // that of sum
	sum       hash.Hash          // of the bytes read so far; nil: there is nothing to compare with
}

// streamed is a piece that has arrived.
type streamed struct {
	bytes  []byte
	stated backends.Checksum
	err    error
}

// newStream starts to fetch. stated is the object's checksum, if known; arrived may be nil.
func newStream(ctx context.Context, store *backends.Store, obj backends.Object, stated backends.Checksum, arrived func(int64)) *stream {
	if arrived == nil {
		arrived = func(int64) {}
	}
	s := &stream{store: store, obj: obj, stated: stated, arrived: arrived, free: make(chan []byte, streamAhead)}
	for range streamAhead {
		s.free <- nil // allocated when needed
	}
	s.pieces = readahead.New(ctx, streamAhead, s.produce)
	return s
}

func (s *stream) produce(ctx context.Context, pieces *readahead.Queue[streamed]) {
	for off := int64(0); off < s.obj.Size; off += streamPiece {
		var buf []byte
		select {
		case buf = <-s.free:
		case <-ctx.Done():
			return
		}
		n := min(streamPiece, s.obj.Size-off)
		switch {
		case buf != nil:
		case s.obj.Size < streamPiece:
			buf = make([]byte, n)
		default:
			buf = *streamBuffers.Get().(*[]byte)
		}
		if !pieces.Put(func() streamed { // at once: the queue has room for all buffers
			stated, err := s.store.ReadRange(ctx, s.obj, off, n, &counted{backends.Stretch{Bytes: buf[:n], Off: off}, s.arrived}, nil)
			return streamed{buf[:n], stated, err}
		}) {
			giveBack(buf)
			return
		}
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 && s.err == nil {
		s.next()
	}
	if len(s.rest) == 0 {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next waits for the next piece.
func (s *stream) next() {
	first := !s.begun
	s.begun = true
	if s.now != nil {
		s.free <- s.now[:cap(s.now)]
		s.now = nil
	}
	p, ok, err := s.pieces.Next()
	if !ok {
		if s.err = err; s.err == nil {
			s.err = io.EOF
		}
		return
	}
	s.now = p.bytes
	if s.err = p.err; s.err != nil {
		return
	}
	if s.stated.IsZero() {
		s.stated = p.stated
	}
	if first {
		s.algorithm = s.stated.Algorithm
		if s.stated.IsZero() {
			s.algorithm = s.store.Capabilities().Checksum
		}
		s.sum = s.algorithm.New()
	}
	s.rest = p.bytes
	if s.sum != nil {
		s.sum.Write(p.bytes)
	}
}

// close stops fetching and releases the buffers.
func (s *stream) close() {
	s.pieces.Close(func(p streamed) { giveBack(p.bytes) })
	if s.now != nil {
		giveBack(s.now)
	}
	for len(s.free) > 0 {
		giveBack(<-s.free)
	}
}

// streamBuffers holds the buffers of streams that have ended.
var streamBuffers = sync.Pool{New: func() any {
	buf := make([]byte, streamPiece)
	return &buf
}}

func giveBack(buf []byte) {
	if buf = buf[:cap(buf)]; len(buf) == streamPiece {
		streamBuffers.Put(&buf)
	}
}

// anywhere reads an object at any offset.
type anywhere struct {
	ctx   context.Context // of the object: io.ReaderAt has no context parameter
	store *backends.Store
	obj   backends.Object
}

// ReadAt implements io.ReaderAt, for ranges within the object.
func (a *anywhere) ReadAt(p []byte, off int64) (int, error) {
	if _, err := a.store.ReadRange(a.ctx, a.obj, off, int64(len(p)), backends.Stretch{Bytes: p, Off: off}, nil); err != nil {
		return 0, err
	}
	return len(p), nil
}
