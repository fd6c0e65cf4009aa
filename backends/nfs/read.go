package nfs

import (
	"context"
	"errors"
	"io"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// ahead is how many blocks of a range are on their way while one is consumed.
const ahead = 3

// OpenRange opens a file and reads the first block by one request. A range of one block
// is read and closed by the same.
func (s *share) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := s.stat(ctx, "read", obj.Key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "byte %d was asked for", off)
	}
	size, _ := s.tree.Sizes()
	once := n >= 0 && n <= int64(size)
	if once {
		size = int(n)
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
		// The server sends less than it is asked for, so that there is more to ask.
		first.Release()
		f, first, err = s.tree.Open(ctx, at, off, size, false)
	}
	if err != nil {
		if remote.StatusOf(err) == remote.IsDir || remote.StatusOf(err) == remote.WrongType {
			return nil, backends.Errorf(backends.NotExist, "read", obj.Key, "this is no file: %w", err)
		}
		return nil, missing("read", obj.Key, err)
	}
	r := &reader{key: obj.Key, want: obj.Version, tree: s.tree, path: at, file: f, block: size}
	r.ctx, r.stop = context.WithCancel(ctx)
	if err := r.begin(first, off, n); err != nil {
		_ = r.Close() // nothing was read
		return nil, err
	}
	return r, nil
}

// reader is a range of a file. Each block is compared with the version asked for when
// it comes, and only then handed on.
type reader struct {
	ctx   context.Context // the reader obeys the context of OpenRange
	stop  context.CancelFunc
	key   string
	want  backends.Version
	tree  remote.Tree
	path  string      // in the tree, where key leads
	file  remote.File // nil when it is closed already
	block int

	now  remote.Block     // being handed on
	data []byte           // what is left of it
	at   int64            // of the byte behind data
	end  int64            // of the range
	more bool             // than the file has was asked for
	sent int64            // up to where reads were asked for
	next []chan readBlock // those under way, in order
	err  error

	closed bool
}

type readBlock struct {
	want  int // bytes
	block remote.Block
	err   error
}

func (r *reader) begin(first remote.Block, off, n int64) error {
	r.now = first // Close releases it
	if err := regular("read", r.key, first.Attr.Type); err != nil {
		return err
	}
	if r.want == "" {
		r.want = version(first.Attr)
	}
	size := first.Attr.Size
	if off > size {
		if err := r.compare(first.Attr); err != nil {
			return err
		}
		return backends.Errorf(backends.Invalid, "read", r.key, "byte %d of a file of %d was asked for", off, size)
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
	if is := version(a); is != r.want {
		return backends.Errorf(backends.Changed, "read", r.key, "the file changed since it was listed, from version %s to %s", r.want, is)
	}
	return nil
}

// receive makes b the block that is handed on.
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

// Read hands on what came, and keeps some blocks on their way meanwhile.
func (r *reader) Read(p []byte) (int, error) {
	if err := ended(r.ctx, "read", r.key); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil && len(r.data) == 0 {
		r.err = r.advance()
	}
	if r.err != nil {
		return 0, r.err
	}
	r.request()
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// advance waits for the next block.
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
		return io.ErrUnexpectedEOF // one block was all there is to come
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
		return io.ErrUnexpectedEOF // what comes behind it must not take its place
	}
	return nil
}

var errClosed = errors.New("the stream was closed")

// request sends for blocks that are not on their way.
func (r *reader) request() {
	if r.file == nil {
		return
	}
	for len(r.next) < ahead && r.sent < r.end {
		off := r.sent
		n := int(min(int64(r.block), r.end-off))
		arrives := make(chan readBlock, 1)
		go func() {
			b, err := r.whole(off, n)
			arrives <- readBlock{n, b, err}
		}()
		r.next = append(r.next, arrives)
		r.sent += int64(n)
	}
}

// whole reads n bytes. Servers may send fewer than they are asked for; what is then
// missing is put together, which needs a copy.
func (r *reader) whole(off int64, n int) (remote.Block, error) {
	b, err := r.readAt(off, n)
	if err != nil || len(b.Data) >= n || b.EOF {
		return b, err
	}
	return r.fill(b, off, n)
}

// readAt reads from the file that is open, or from what has its name when the server no
// longer knows the handle: it may have been restarted with others. Whether this is
// still the file is seen from the attributes that come with the block.
func (r *reader) readAt(off int64, n int) (remote.Block, error) {
	b, err := r.file.ReadAt(r.ctx, off, n)
	switch remote.StatusOf(err) {
	case remote.Stale, remote.BadHandle, remote.FHExpired:
	default:
		return b, err
	}
	_, again, nerr := r.tree.Open(r.ctx, r.path, off, n, true)
	if s := remote.StatusOf(nerr); s != remote.OK {
		return b, err // there is no such file any more
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

// Close gives up what is under way.
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
	f := r.file
	ctx, cancel := cleanup(r.ctx)
	go func() { // nobody waits for it: that it fails does not matter to what was read
		defer cancel()
		_ = f.Close(ctx)
	}()
	return nil
}
