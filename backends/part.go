package backends

import (
	"context"
	"errors"
	"io"
	"os"
)

// A Part is the source of one part of an object: bytes that can be read at any offset from the
// beginning of the part, by several goroutines and more than once.
//
// To read a part that a Store passed to WritePart is to send it: ReadAt and Reader wait for the
// bandwidth limit and for more urgent transfers, and the bytes count as progress. Errors of the source
// are LocalErrors.
type Part struct {
	src       io.ReaderAt // of Put
	off, size int64       // within src
	pacer     *pacer      // nil: reads neither wait nor count
}

// NewPart returns n bytes of src from off on, for reads that neither wait nor count.
func NewPart(src io.ReaderAt, off, n int64) *Part { return &Part{src: src, off: off, size: n} }

// Size returns the number of bytes.
func (p *Part) Size() int64 { return p.size }

// Reader returns a new reader that begins at the first byte.
func (p *Part) Reader() *io.SectionReader { return io.NewSectionReader(p, 0, p.size) }

// ReadAt implements io.ReaderAt.
func (p *Part) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= p.size {
		return 0, io.EOF
	}
	if left := p.size - off; int64(len(b)) > left {
		n, err := p.ReadAt(b[:left], off)
		if err == nil {
			err = io.EOF
		}
		return n, err
	}
	if err := p.pacer.wait(len(b)); err != nil {
		return 0, err
	}
	n, err := p.src.ReadAt(b, p.off+off)
	p.pacer.moved(p.off+off, n)
	if n == len(b) {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the file was truncated during the upload")
	}
	return n, &LocalError{err}
}

// Unpaced returns the same bytes for reads that neither wait nor count: those that send nothing, such
// as for a checksum that precedes the bytes, and those after WritePart returned.
func (p *Part) Unpaced() *Part {
	src := p.src
	if counting, ok := src.(Counting); ok {
		src = counting.Uncounted()
	}
	return NewPart(src, p.off, p.size)
}

// stretch is how many bytes SendFile requests from the pacer at once.
const stretch = 1 << 20

// SendFile sends the part directly from the file that contains it, and returns how many bytes it
// sent. send sends up to n bytes of f from off on and returns how many it sent. The error matches
// errors.ErrUnsupported if the part is not in a file or send sends nothing; reading the rest reveals
// the cause. All bytes sent reset the stall detector of ctx.
func (p *Part) SendFile(ctx context.Context, send func(f *os.File, off int64, n int) int) (done int64, err error) {
	file, sent := fileOf(p.src)
	if file == nil {
		return 0, errors.ErrUnsupported
	}
	for may := 0; done < p.size; {
		if may == 0 {
			may = int(min(p.size-done, stretch))
			if err := p.pacer.wait(may); err != nil {
				return done, err
			}
		}
		off := p.off + done
		n := send(file, off, may)
		if n <= 0 {
			return done, errors.ErrUnsupported
		}
		sent(off, n)
		p.pacer.moved(off, n)
		Moved(ctx)
		may -= n
		done += int64(n)
	}
	return done, nil
}
