package objectstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// SmallObject is the maximum size, in bytes, of an object that is sent as one request in Commit.
// Larger objects are sent in parts before.
const SmallObject = 8 << 20

// abortWithin is the timeout of Abort.
const abortWithin = 15 * time.Second

// Uploader is the protocol's part of writing one object.
type Uploader interface {
	// Begin starts a multipart upload. It succeeds at most once.
	Begin(ctx context.Context) error
	// Resume continues the upload of token instead, and reports whether the store still has it.
	// Send is nevertheless called for all parts.
	Resume(ctx context.Context, token string) (bool, error)
	// Token returns the store's ID of the upload and the token for Resume. The ID is "" if the store
	// has nothing to resume.
	Token() (id, token string, err error)
	// Send sends one part. Parts are numbered from 1 and may be sent again. Send is called
	// concurrently.
	Send(ctx context.Context, number int, src *backends.Part) error
	// Sum returns a writer that computes the checksum of a small object before Publish. Each call
	// starts over.
	Sum() io.Writer
	// Publish creates the object: from the parts if Begin was called, else from small. It is called
	// again after a failure, also if only the response was lost.
	Publish(ctx context.Context, small *backends.Part, size int64) (backends.Object, error)
	// Drop discards the parts in the store.
	Drop(ctx context.Context) error
}

// CreateParts starts writing an object of known size.
func CreateParts(ctx context.Context, to Uploader, key string, opts backends.CreateOptions, capabilities backends.Capabilities) (backends.PartWriter, error) {
	u := newUpload(ctx, to, key, opts, capabilities)
	if opts.Size <= SmallObject {
		return u, nil
	}
	var err error
	if opts.Resume != "" {
		u.begun, err = to.Resume(ctx, opts.Resume)
		if kind := backends.KindOf(err); err != nil && !kind.Retryable() && kind != backends.Canceled {
			u.begun, err = false, nil // permission to write does not imply permission to list
		}
	}
	if !u.begun && err == nil {
		err = u.begin(ctx)
	}
	if err != nil {
		return nil, err
	}
	if opts.Begun != nil {
		id, token, err := to.Token()
		if err != nil {
			return nil, errors.Join(err, u.Abort())
		}
		if id != "" {
			u.left = true
			opts.Begun(id, token)
		}
	}
	return u, nil
}

// Create starts writing an object whose size may be unknown. Each part is buffered in memory until
// it is full.
func Create(ctx context.Context, to Uploader, key string, opts backends.CreateOptions, capabilities backends.Capabilities) backends.Writer {
	return &stream{upload: newUpload(ctx, to, key, opts, capabilities), ctx: ctx, most: capabilities.MaxParts}
}

// upload is one object being written: either small and sent in Commit, or in parts.
type upload struct {
	to     Uploader
	key    string
	size   int64           // as announced; -1 if unknown
	length int64           // part length
	lasts  context.Context //nolint:containedctx // Abort works after that of Create ended

	begun bool // it is in parts
	left  bool // Abort keeps the parts for a later Resume
	ended bool // committed or aborted

	mu    sync.Mutex // guards the fields below
	small *backends.Part
	sizes map[int]int64 // sizes of the parts sent
}

func newUpload(ctx context.Context, to Uploader, key string, opts backends.CreateOptions, capabilities backends.Capabilities) *upload {
	return &upload{
		to: to, key: key, size: opts.Size, length: capabilities.PartLength(opts.Size),
		lasts: context.WithoutCancel(ctx),
	}
}

func (u *upload) begin(ctx context.Context) error {
	err := u.to.Begin(ctx)
	u.begun = err == nil
	return err
}

// WritePart sends a part, or computes the checksum if it is a whole small object.
func (u *upload) WritePart(ctx context.Context, off int64, src *backends.Part) error {
	if u.begun {
		return u.send(ctx, int(off/u.length)+1, src)
	}
	return u.keep(src)
}

// digestBuffers are small enough for the CPU cache.
var digestBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// Digest writes src to a hash, with a shared buffer.
func Digest(h io.Writer, src *backends.Part) error {
	buf := digestBuffers.Get().(*[64 << 10]byte)
	defer digestBuffers.Put(buf)
	_, err := io.CopyBuffer(h, src.Reader(), buf[:])
	return err
}

// keep retains src for Commit. It reads src here, paced by the Store, to compute the checksum.
func (u *upload) keep(src *backends.Part) error {
	if err := Digest(u.to.Sum(), src); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.small = src.Unpaced()
	return nil
}

func (u *upload) send(ctx context.Context, number int, src *backends.Part) error {
	if err := u.to.Send(ctx, number, src); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sizes == nil {
		u.sizes = make(map[int]int64)
	}
	u.sizes[number] = src.Size()
	return nil
}

// Commit publishes the object.
func (u *upload) Commit(ctx context.Context) (backends.Object, error) {
	if u.ended {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key, "the writer is closed")
	}
	if !u.begun && u.small == nil { // nothing was written
		if err := u.keep(section(nil)); err != nil {
			return backends.Object{}, err
		}
	}
	var size int64
	if u.small != nil {
		size = u.small.Size()
	}
	for _, n := range u.sizes {
		size += n
	}
	if u.size >= 0 && size != u.size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key, "%d of %d bytes were written", size, u.size)
	}
	obj, err := u.to.Publish(ctx, u.small, size)
	if err != nil {
		return backends.Object{}, err
	}
	u.ended = true
	return obj, nil
}

// Abort discards the parts in the store, unless Begun received a resume token.
func (u *upload) Abort() error {
	if u.ended {
		return nil
	}
	u.ended, u.small = true, nil
	if !u.begun || u.left {
		return nil
	}
	ctx, cancel := context.WithTimeout(u.lasts, abortWithin)
	defer cancel()
	return u.to.Drop(ctx)
}

// stream is an upload whose parts are written sequentially.
type stream struct {
	*upload
	ctx    context.Context //nolint:containedctx // Write has none of its own
	most   int64           // maximum number of parts
	buf    []byte
	number int // parts sent
}

func (s *stream) Write(p []byte) (n int, err error) {
	if s.ended {
		return 0, backends.Errorf(backends.Invalid, "write", s.key, "the writer is closed")
	}
	for len(p) > 0 {
		if int64(len(s.buf)) == s.length {
			if err := s.flush(s.ctx); err != nil {
				return n, err
			}
		}
		take := min(int64(len(p)), s.length-int64(len(s.buf)))
		s.buf = append(s.buf, p[:take]...)
		p, n = p[take:], n+int(take)
	}
	return n, nil
}

// flush sends the buffer as the next part. After an error the buffer is kept.
func (s *stream) flush(ctx context.Context) error {
	if !s.begun {
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	if s.most > 0 && int64(s.number) == s.most {
		return backends.Errorf(backends.Unsupported, "write", s.key,
			"a stream of unknown size is limited to %d parts of %d MiB: set the size in advance", s.most, s.length>>20)
	}
	if err := s.send(ctx, s.number+1, section(s.buf)); err != nil {
		return err
	}
	s.number++
	s.buf = s.buf[:0]
	return nil
}

// Commit sends the buffer and publishes the object.
func (s *stream) Commit(ctx context.Context) (backends.Object, error) {
	switch {
	case s.ended:
	case !s.begun:
		if err := s.keep(section(s.buf)); err != nil {
			return backends.Object{}, err
		}
	case len(s.buf) > 0:
		if err := s.flush(ctx); err != nil {
			return backends.Object{}, err
		}
	}
	return s.upload.Commit(ctx)
}

func section(data []byte) *backends.Part {
	return backends.NewPart(bytes.NewReader(data), 0, int64(len(data)))
}
