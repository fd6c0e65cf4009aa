package backends

import (
	"context"
	"errors"
	"io"
	"os"
)

// InFile is a source of Put whose bytes lie in a file, at the same offsets. A protocol may let the
// kernel send them with sendfile, which costs a fraction of reading and writing them.
type InFile interface {
	io.ReaderAt
	// File returns the file; nil if there is none.
	File() *os.File
	// Sent records that n bytes from off on were sent without a read.
	Sent(off int64, n int)
}

// stretch is how many bytes SendFile requests from the pacer at once.
const stretch = 1 << 20

// SendFile sends the unread rest of src directly from its underlying file. src was passed to the
// protocol by a Store or returned by Unpaced. send sends up to n bytes from off on and returns how
// many it sent. The error matches errors.ErrUnsupported if send sends nothing or src is not in a
// file. src is then positioned behind the bytes sent, and reading on reveals the cause. All bytes
// sent reset the stall detector of ctx.
func SendFile(ctx context.Context, src *io.SectionReader, send func(f *os.File, off int64, n int) int) error {
	under, begin, size := src.Outer()
	part, ok := under.(partSource)
	if !ok {
		part = local{under} // no Store passed it
	}
	file, sent := part.file()
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
			if err := part.pace(may); err != nil {
				return err
			}
		}
		n := send(file, begin+at, may)
		if n <= 0 {
			return errors.ErrUnsupported
		}
		sent(begin+at, n)
		part.went(ctx, begin+at, n)
		may -= n
		if at, err = src.Seek(int64(n), io.SeekCurrent); err != nil {
			return err
		}
	}
	return nil
}

// fileOf returns the file that contains src, and the function that records bytes sent from it.
func fileOf(src io.ReaderAt) (file *os.File, sent func(off int64, n int)) {
	switch in := src.(type) {
	case InFile:
		return in.File(), in.Sent
	case *os.File:
		return in, func(int64, int) {}
	}
	return nil, nil
}
