package nfs

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// ahead is the maximum number of blocks in flight while one block is consumed.
const ahead = 3

// window returns the number of blocks in flight for each open stream. The streams share the slots, because
// a block that waits for a slot only takes memory.
func (s *share) window() int {
	return min(max(s.slots/int(max(s.streams.Load(), 1)), 1), ahead)
}

var _ backends.BufferedReader = (*reader)(nil)

// blockSize returns the length of reads, in whole pages if possible.
func (s *share) blockSize() int64 {
	const page = 4 << 10
	n, _ := s.tree.Sizes()
	if n > page {
		n -= n % page
	}
	return int64(n)
}

// OpenRange implements backends.Source. One request opens the file and reads the first block. A
// range of a single block is also closed by that request.
func (s *share) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := fileshare.CheckCall(ctx, protocol{s}, "read", obj.Key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "invalid offset %d", off)
	}
	block := s.blockSize()
	once := n >= 0 && n <= block
	size := int(n)
	if !once {
		size = int(block - off%block)
	}
	var (
		at    string
		f     remote.File
		first remote.Block
	)
	err := s.links.at(ctx, obj.Key, func(p string) (err error) {
		at = p
		f, first, err = s.tree.Open(ctx, p, off, size, once)
		return err
	})
	if err == nil && once && len(first.Data) < size && !first.EOF {
		// The server returned less than requested, so the file must stay open.
		first.Release()
		f, first, err = s.tree.Open(ctx, at, off, size, false)
	}
	if err != nil {
		if remote.StatusOf(err) == remote.IsDir || remote.StatusOf(err) == remote.WrongType {
			return nil, backends.Errorf(backends.NotExist, "read", obj.Key, "not a file: %w", err)
		}
		return nil, missing("read", obj.Key, err)
	}
	r := &reader{key: obj.Key, want: obj.Version, share: s, path: at, file: f, block: block}
	r.ctx, r.stop = context.WithCancel(ctx)
	if f != nil {
		s.streams.Add(1)
	}
	if err := r.begin(first, off, n); err != nil {
		_ = r.Close() // nothing was read
		return nil, err
	}
	return r, nil
}

// reader reads a range of a file. It compares each block with the wanted version before returning
// it.
type reader struct {
	ctx   context.Context // the context of OpenRange, which bounds all reads
	stop  context.CancelFunc
	key   string
	want  backends.Version
	share *share
	path  string      // resolved path of key in the tree
	file  remote.File // nil if already closed
	block int64       // blocks end at multiples of it

	now  remote.Block     // current block
	data []byte           // its unread rest
	at   int64            // offset after data
	end  int64            // end of the range
	more bool             // the range extends beyond the end of the file
	sent int64            // offset after the last requested block
	next []chan readBlock // pending blocks, in order
	err  error

	closed bool
}

type readBlock struct {
	want  int // requested bytes
	block remote.Block
	err   error
}

func (r *reader) begin(first remote.Block, off, n int64) error {
	r.now = first // Close releases it
	if err := attributes(first.Attr).Regular("read", r.key); err != nil {
		return err
	}
	if r.want == "" {
		r.want = version(attributes(first.Attr))
	}
	size := first.Attr.Size
	if off > size {
		if err := r.compare(first.Attr); err != nil {
			return err
		}
		return backends.Errorf(backends.Invalid, "read", r.key, "byte %d is outside the file of %d bytes", off, size)
	}
	r.at, r.end = off, size
	if n > size-off {
		r.more = true
	} else if n >= 0 {
		r.end = off + n
	}
	err := r.receive(first)
	r.sent = r.at
	return err
}

func (r *reader) compare(a remote.Attr) error {
	if is := version(attributes(a)); is != r.want {
		return backends.Errorf(backends.Changed, "read", r.key, "the file changed after it was listed, from version %s to %s", r.want, is)
	}
	return nil
}

// receive makes b the current block, after comparing its version.
func (r *reader) receive(b remote.Block) error {
	r.now, r.data = b, b.Data
	if err := r.compare(b.Attr); err != nil {
		r.data = nil
		return err
	}
	if int64(len(r.data)) > r.end-r.at {
		r.data = r.data[:r.end-r.at]
	}
	r.at += int64(len(r.data))
	return nil
}

// Read returns the next bytes and keeps some blocks in flight.
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, fileshare.Ended(r.ctx, "read", r.key)
	}
	lent, err := r.nextBuffer(len(p))
	return copy(p, lent), err
}

// NextBuffer implements backends.BufferedReader. It returns the rest of a block, which is in the buffer of
// the connection and usually begins at a page, as direct I/O needs.
func (r *reader) NextBuffer() ([]byte, error) { return r.nextBuffer(math.MaxInt) }

// nextBuffer returns up to n of the next bytes, under the rules of NextBuffer.
func (r *reader) nextBuffer(n int) ([]byte, error) {
	if err := fileshare.Ended(r.ctx, "read", r.key); err != nil {
		return nil, err
	}
	for r.err == nil && len(r.data) == 0 {
		r.err = r.advance()
	}
	if r.err != nil {
		return nil, r.err
	}
	r.request()
	p := r.data[:min(n, len(r.data))]
	r.data = r.data[len(p):]
	return p, nil
}

// advance releases the current block and waits for the next.
func (r *reader) advance() error {
	r.now.Release()
	if r.at == r.end {
		if r.more {
			return io.ErrUnexpectedEOF
		}
		return io.EOF
	}
	r.request()
	if len(r.next) == 0 {
		return io.ErrUnexpectedEOF // the file was opened for one block only
	}
	a := <-r.next[0]
	r.next = r.next[1:]
	if a.err != nil {
		return missing("read", r.key, a.err)
	}
	if err := r.receive(a.block); err != nil {
		return err
	}
	if len(a.block.Data) < a.want {
		r.data = nil
		return io.ErrUnexpectedEOF // the next block must not take the place of the missing bytes
	}
	return nil
}

var errClosed = errors.New("the stream was closed")

// request starts reads until enough blocks are in flight.
func (r *reader) request() {
	if r.file == nil {
		return
	}
	for len(r.next) < r.share.window() && r.sent < r.end {
		off := r.sent
		n := int(min(r.block-off%r.block, r.end-off))
		arrives := make(chan readBlock, 1)
		go func() {
			b, err := r.whole(off, n)
			arrives <- readBlock{n, b, err}
		}()
		r.next = append(r.next, arrives)
		r.sent += int64(n)
	}
}

// whole reads n bytes. If the server returns fewer, whole requests the rest and joins the pieces,
// which needs a copy.
func (r *reader) whole(off int64, n int) (remote.Block, error) {
	b, err := r.readAt(off, n)
	if err != nil || len(b.Data) >= n || b.EOF {
		return b, err
	}
	return r.fill(b, off, n)
}

// readAt reads from the open file. If the server no longer accepts the handle, as after a restart,
// readAt opens the file by name. The attributes in the block show whether it is the same file.
func (r *reader) readAt(off int64, n int) (remote.Block, error) {
	b, err := r.file.ReadAt(r.ctx, off, n)
	if !stale(err) {
		return b, err
	}
	_, again, nerr := r.share.tree.Open(r.ctx, r.path, off, n, true)
	if s := remote.StatusOf(nerr); s != remote.OK {
		return b, err // the file no longer exists
	}
	return again, nerr
}

func (r *reader) fill(b remote.Block, off int64, n int) (remote.Block, error) {
	all := make([]byte, 0, n)
	for {
		all = append(all, b.Data...)
		attr, eof, got := b.Attr, b.EOF, len(b.Data)
		b.Release()
		if len(all) >= n || eof || got == 0 {
			return remote.Block{Data: all, Attr: attr, EOF: eof}, nil
		}
		if err := r.compare(attr); err != nil {
			return remote.Block{}, err
		}
		var err error
		if b, err = r.readAt(off+int64(len(all)), n-len(all)); err != nil {
			return remote.Block{}, err
		}
	}
}

// Close cancels the pending reads.
func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed, r.err = true, errClosed
	r.stop()
	r.now.Release()
	r.data = nil
	for _, arrives := range r.next {
		go func() {
			a := <-arrives
			a.block.Release()
		}()
	}
	if r.file == nil {
		return nil
	}
	r.share.streams.Add(-1)
	f := r.file
	ctx, cancel := cleanup(r.ctx)
	go func() { // nobody waits for the close, and its failure does not affect the data
		defer cancel()
		_ = f.Close(ctx)
	}()
	return nil
}
