package backends

import (
	"context"
	"errors"
	"io"
	"os"
)

// InFile is a source of Put whose bytes lie in a file, at the same offsets. A protocol may
// have the kernel send them from there, which costs a fraction of reading and writing them.
type InFile interface {
	io.ReaderAt
	// File is that file; nil if there is none.
	File() *os.File
	// Sent hears of n bytes from off on that were sent and not read.
	Sent(off int64, n int)
}

// stretch is for how many bytes SendFile asks at once whether they may go.
const stretch = 1 << 20

// SendFile sends what is left of src, which a Store handed to a protocol or Unpaced made of
// that, from the file that it lies in. send sends up to n bytes from off on and returns how
// many it did. Where it sends none, and where src lies in no file, the error is of kind
// errors.ErrUnsupported; src is behind what was sent, and who reads on sees what is wrong.
// The watchdog over the request of ctx hears of all that is sent.
func SendFile(ctx context.Context, src *io.SectionReader, send func(f *os.File, off int64, n int) int) error {
	under, begin, size := src.Outer()
	from, pace, went := under, func(int) error { return nil }, func(int64, int) { Moved(ctx) }
	switch u := under.(type) {
	case *paced:
		from, pace, went = u.src, u.pace, u.went
	case local:
		from = u.src
	}
	file, sent := lies(from)
	if file == nil {
		return errors.ErrUnsupported
	}
	at, err := src.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	may := 0
	for at < size {
		if may == 0 {
			may = int(min(size-at, stretch))
			if err := pace(may); err != nil {
				return err
			}
		}
		n := send(file, begin+at, may)
		if n <= 0 {
			return errors.ErrUnsupported
		}
		sent(begin+at, n)
		went(begin+at, n)
		may -= n
		if at, err = src.Seek(int64(n), io.SeekCurrent); err != nil {
			return err
		}
	}
	return nil
}

// lies is the file that a source lies in, and who hears of what was sent of it.
func lies(src io.ReaderAt) (file *os.File, sent func(off int64, n int)) {
	switch in := src.(type) {
	case InFile:
		return in.File(), in.Sent
	case *os.File:
		return in, func(int64, int) {}
	}
	return nil, nil
}
