package download

import (
	"context"
	"hash"
	"io"
	"sync"

	"github.com/stager-dev/stager/backends"
)

const (
	// streamPiece is how long the ranges are that a stream is made of, and streamAhead how
	// many of them are fetched at once, or wait for their turn.
	streamPiece = 2 << 20
	streamAhead = 4
)

// stream is an object from its first byte to its last, in order, for somebody who reads
// it once. Its ranges are fetched at once and wait in memory for their turn:
//
//	free buffers ─ produce ─ fetch, fetch, … ─ pieces, in order ─ Read ─ sum ─ free buffers
//
// A range that has come holds no connection, so a slow reader never keeps one from others.
type stream struct {
	ctx     context.Context // of the object: io.Reader brings none
	stop    context.CancelFunc
	work    sync.WaitGroup
	store   *backends.Store
	obj     backends.Object
	arrived func(int64)
	pieces  chan *streamed
	free    chan []byte

	// What follows is the reader's.
	begun     bool
	now       *streamed
	rest      []byte
	err       error
	told      backends.Checksum
	algorithm backends.Algorithm // that of sum
	sum       hash.Hash          // of what was read; nil: there is nothing to compare it with
}

type streamed struct {
	done  chan struct{} // closed when those below are there
	bytes []byte
	told  backends.Checksum
	err   error
}

// newStream begins to fetch. told is the object's checksum, as far as it is known;
// arrived may be nil.
func newStream(ctx context.Context, store *backends.Store, obj backends.Object, told backends.Checksum, arrived func(int64)) *stream {
	ctx, stop := context.WithCancel(ctx)
	if arrived == nil {
		arrived = func(int64) {}
	}
	s := &stream{
		ctx: ctx, stop: stop, store: store, obj: obj, told: told, arrived: arrived,
		pieces: make(chan *streamed, streamAhead), free: make(chan []byte, streamAhead),
	}
	for range streamAhead {
		s.free <- nil // made when they are needed
	}
	s.work.Go(s.produce)
	return s
}

func (s *stream) produce() {
	defer close(s.pieces)
	for off := int64(0); off < s.obj.Size; off += streamPiece {
		var buf []byte
		select {
		case buf = <-s.free:
		case <-s.ctx.Done():
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
		p := &streamed{done: make(chan struct{}), bytes: buf[:n]}
		s.work.Go(func() {
			defer close(p.done)
			p.told, p.err = s.store.ReadRange(s.ctx, s.obj, off, n, &counted{backends.Stretch{Bytes: p.bytes, Off: off}, s.arrived}, nil)
		})
		s.pieces <- p // it has room for all buffers
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
		s.free <- s.now.bytes[:cap(s.now.bytes)]
		s.now = nil
	}
	p, more := <-s.pieces
	if !more {
		if s.err = context.Cause(s.ctx); s.err == nil {
			s.err = io.EOF
		}
		return
	}
	<-p.done
	s.now = p
	if s.err = p.err; s.err != nil {
		return
	}
	if s.told.IsZero() {
		s.told = p.told
	}
	if first {
		s.algorithm = s.told.Algorithm
		if s.told.IsZero() {
			s.algorithm = s.store.Capabilities().Checksum
		}
		s.sum = s.algorithm.New()
	}
	s.rest = p.bytes
	if s.sum != nil {
		s.sum.Write(p.bytes)
	}
}

// close ends what is under way, and the use of the bytes that were read.
func (s *stream) close() {
	s.stop()
	s.work.Wait()
	if s.now != nil {
		giveBack(s.now.bytes)
	}
	for p := range s.pieces {
		giveBack(p.bytes)
	}
	for len(s.free) > 0 {
		giveBack(<-s.free)
	}
}

// streamBuffers are those of streams that have ended.
var streamBuffers = sync.Pool{New: func() any {
	buf := make([]byte, streamPiece)
	return &buf
}}

func giveBack(buf []byte) {
	if buf = buf[:cap(buf)]; len(buf) == streamPiece {
		streamBuffers.Put(&buf)
	}
}

// anywhere reads an object at any place.
type anywhere struct {
	ctx   context.Context // of the object: io.ReaderAt brings none
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
