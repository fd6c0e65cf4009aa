package backends

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
)

// partSource is what a Store passes to WritePart below the io.SectionReader: what a protocol may do
// with a part beside reading it. Protocols use it by [Unpaced] and [SendFile].
type partSource interface {
	io.ReaderAt
	// unpaced returns the source for reads that send nothing.
	unpaced() partSource
	// file returns the file that contains the bytes, at the same offsets, and the function that
	// records bytes sent from it; nil if there is none.
	file() (f *os.File, sent func(off int64, n int))
	// pace waits until n bytes may be sent.
	pace(n int) error
	// went records that n bytes from off on were sent.
	went(ctx context.Context, off int64, n int)
}

var _, _ partSource = (*paced)(nil), local{}

// paced reads a local file, applies the bandwidth limit and resets the stall detector. Its errors
// are local. Bytes that an earlier attempt already read are not progress: a store that accepts all
// bytes and then always fails must not be retried for ever.
type paced struct {
	store    *Store
	ctx      context.Context // the context of one request
	src      io.ReaderAt
	watchdog *stallDetector
	reached  *atomic.Int64 // highest offset of any attempt
}

func (p *paced) ReadAt(b []byte, off int64) (int, error) {
	if err := p.pace(len(b)); err != nil {
		return 0, err
	}
	n, err := local{p.src}.ReadAt(b, off)
	p.went(p.ctx, off, n)
	return n, err
}

func (p *paced) unpaced() partSource {
	if counting, ok := p.src.(Counting); ok {
		return local{counting.Uncounted()}
	}
	return local{p.src}
}

func (p *paced) file() (*os.File, func(off int64, n int)) { return fileOf(p.src) }

// pace waits until n bytes may be sent.
func (p *paced) pace(n int) error {
	if err := p.yield(n); err != nil {
		return err
	}
	return p.store.throttle(p.ctx, n, p.watchdog)
}

// went records that n bytes from off on were sent.
func (p *paced) went(_ context.Context, off int64, n int) {
	if end, before := off+int64(n), p.reached.Load(); end > before {
		p.reached.CompareAndSwap(before, end)
		p.watchdog.Reset()
		p.store.requests.moved(n)
	} else {
		p.watchdog.alive()
	}
}

// yield waits while more urgent work is active, with the stall detector paused.
func (p *paced) yield(n int) error {
	if p.store.opts.Yield == nil {
		return nil
	}
	p.watchdog.Pause()
	defer p.watchdog.alive()
	if err := p.store.opts.Yield(p.ctx, n); err != nil {
		return &Error{Kind: Canceled, Err: err}
	}
	return nil
}

// local wraps a file so that its errors are LocalErrors.
type local struct{ src io.ReaderAt }

func (l local) ReadAt(b []byte, off int64) (int, error) {
	n, err := l.src.ReadAt(b, off)
	if n == len(b) {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the file was truncated during the upload")
	}
	return n, &LocalError{err}
}

func (l local) unpaced() partSource                      { return l }
func (l local) file() (*os.File, func(off int64, n int)) { return fileOf(l.src) }
func (l local) pace(int) error                           { return nil }
func (l local) went(ctx context.Context, _ int64, _ int) { Moved(ctx) }

// Unpaced returns src from its beginning, without the pacing and the stall detection of the Store
// that passed it to WritePart. It is for protocols that read a part twice, because they compute a
// checksum first, or that send it in Commit.
func Unpaced(src *io.SectionReader) *io.SectionReader {
	under, off, n := src.Outer()
	if part, ok := under.(partSource); ok {
		under = part.unpaced()
	}
	return io.NewSectionReader(under, off, n)
}

// Counting is a source of Put that counts bytes read as bytes sent. Uncounted returns a source of
// the same bytes that does not count. Reading a part to compute its checksum sends nothing, and
// counting it would distort the forecast of the upload's end.
type Counting interface {
	io.ReaderAt
	Uncounted() io.ReaderAt
}
