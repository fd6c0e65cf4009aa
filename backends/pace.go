package backends

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

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
	p.went(off, n)
	return n, err
}

// pace waits until n bytes may be sent.
func (p *paced) pace(n int) error {
	if err := p.yield(n); err != nil {
		return err
	}
	return p.store.throttle(p.ctx, n, p.watchdog)
}

// went records that n bytes from off on were sent.
func (p *paced) went(off int64, n int) {
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

// Unpaced returns src from its beginning, without the pacing and the stall detection of the Store
// that passed it to WritePart. It is for protocols that read a part twice, because they compute a
// checksum first, or that send it in Commit.
func Unpaced(src *io.SectionReader) *io.SectionReader {
	under, off, n := src.Outer()
	if p, ok := under.(*paced); ok {
		from := p.src
		if counting, ok := from.(Counting); ok {
			from = counting.Uncounted()
		}
		under = local{from}
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
