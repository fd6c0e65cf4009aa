package unpack

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// tarBlock is the block size of a tar.
	tarBlock = 512
	// maxTail is how many zeros may follow the end of a tar: tapes have long blocks.
	maxTail = 64 << 20
	// maxWindow limits how far back zstd may look, in memory: the window of levels up to 20.
	maxWindow = 32 << 20
)

// tar unpacks a tar with any compression. Only zeros may follow its end, so that nothing is lost
// silently.
func (u *unpacker) tar(f Format, src *source) error {
	plain, done, err := decompress(f, src)
	if err != nil {
		return err
	}
	defer done()
	in := &counting{Reader: plain}
	r := tar.NewReader(in)
	end := int64(0) // offset of the end of the entries so far
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return stream("tar", err)
		}
		end = in.at + (h.Size+tarBlock-1)/tarBlock*tarBlock
		if h.Typeflag == tar.TypeXGlobalHeader {
			end = in.at
			continue
		}
		if err := checkTar(h); err != nil {
			return err
		}
		e := entry{h.Name, h.Size, h.FileInfo().Mode(), func() (io.ReadCloser, error) { return io.NopCloser(r), nil }}
		if err := u.put(e); err != nil {
			return err
		}
	}
	if in.at < end+tarBlock {
		return damaged("it is truncated: the zero blocks at the end of the tar are missing")
	}
	return zeros(in)
}

// decompress returns the tar in src. done releases its memory.
func decompress(f Format, src io.Reader) (plain io.Reader, done func(), err error) {
	switch f {
	case TarGzip:
		r, err := gzip.NewReader(bufio.NewReaderSize(src, 64<<10))
		if err != nil {
			return nil, nil, stream("gzip", err)
		}
		return r, func() {}, nil
	case TarZstd:
		r, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, stream("zstd", err)
		}
		return &unzstd{r}, r.Close, nil
	}
	return bufio.NewReaderSize(src, 64<<10), func() {}, nil
}

// unzstd explains what to do about a window that is too long.
type unzstd struct{ *zstd.Decoder }

func (z *unzstd) Read(p []byte) (int, error) {
	n, err := z.Decoder.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		err = refuse("", "decompression requires more than %d MiB of memory; compress it with zstd level 20 or lower, without --long", maxWindow>>20)
	}
	return n, err
}

// stream returns the error for a failure of the archive as a whole.
func stream(what string, err error) error {
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it is truncated (%s: %w)", what, err)
	}
	return damaged("%s: %w", what, err)
}

// counting counts the bytes that were read.
type counting struct {
	io.Reader
	at int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.at += int64(n)
	return n, err
}

// checkTar refuses an entry that is neither a file nor a directory, unless its mode already shows
// it.
func checkTar(h *tar.Header) error {
	switch {
	case IsSparse(h):
		return refuse(h.Name, "it is a sparse file; pack it without --sparse")
	case h.Typeflag == tar.TypeLink:
		return refuse(h.Name, "it is a hard link, but only files and directories are supported; pack it with --hard-dereference")
	case h.Typeflag == tar.TypeReg, h.Typeflag == tar.TypeDir, !h.FileInfo().Mode().IsRegular():
		return nil
	}
	return refuse(h.Name, "it has type %q, but only files and directories are supported", h.Typeflag)
}

// IsSparse reports whether an entry has holes that the archive omits.
func IsSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// zeros reads to the end, and refuses anything but zeros.
func zeros(r io.Reader) error {
	buf := make([]byte, 32<<10)
	for read := 0; ; {
		n, err := r.Read(buf)
		for _, b := range buf[:n] {
			if b != 0 {
				return refuse("", "data follows its end, as in concatenated archives; pack it again")
			}
		}
		if read += n; read > maxTail {
			return refuse("", "more than %d MiB of zeros follow its end", maxTail>>20)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return stream("after its end", err)
		}
	}
}
