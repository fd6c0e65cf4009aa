package backends

import (
	"io"
	"os"
)

// Counting is a source of Put that counts bytes read as bytes sent. Uncounted returns a source of
// the same bytes that does not count. Reading a part to compute its checksum sends nothing, and
// counting it would distort the forecast of the upload's end.
//
// Only Part looks for Counting and InFile, in the source itself, as io.Copy looks for io.WriterTo.
type Counting interface {
	io.ReaderAt
	Uncounted() io.ReaderAt
}

// InFile is a source of Put whose bytes lie in a file, at the same offsets. A protocol may let the
// kernel send them with sendfile, which costs a fraction of reading and writing them.
type InFile interface {
	io.ReaderAt
	// File returns the file; nil if there is none.
	File() *os.File
	// Sent records that n bytes from off on were sent without a read.
	Sent(off int64, n int)
}

// fileOf returns the file that contains src, and the function that records bytes sent from it; nil if
// there is none.
func fileOf(src io.ReaderAt) (file *os.File, sent func(off int64, n int)) {
	switch in := src.(type) {
	case InFile:
		return in.File(), in.Sent
	case *os.File:
		return in, func(int64, int) {}
	}
	return nil, nil
}
