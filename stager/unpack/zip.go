package unpack

import (
	"archive/zip"
	"errors"
	"hash/maphash"
	"io"
)

const (
	// maxDirectory limits the size of the directory of a zip. All of it is in memory, where it
	// needs about three times as much. It suffices for about 150,000 files.
	maxDirectory = 16 << 20
	// dirBlock is how much of the directory is read at a time.
	dirBlock = 256 << 10
)

// errOrder reports a request for bytes that were already read.
var errOrder = errors.New("its data overlaps or precedes that of the previous entry")

// zip unpacks the entries in the directory, and reads src to its end.
//
// The directory is at the end of an archive, but entries must be unpacked while they arrive, so the
// directory is read first. Then the whole archive is read once, forward, including the directory,
// which must be the same. All common tools write entries in the order of the directory. An archive
// with another order is refused, as is one in which two entries share bytes, as in zip bombs.
func (u *unpacker) zip(at io.ReaderAt, src *source, size int64) error {
	z := &zipped{ahead: at, size: size, seed: maphash.MakeSeed(), seen: make(map[int64]uint64)}
	r, err := zip.NewReader(z, size)
	switch {
	case z.err != nil:
		return z.err
	case errors.Is(err, zip.ErrFormat), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it is truncated: the central directory of the zip is missing or invalid (%w)", err)
	case err != nil:
		return stream("zip", err)
	}
	z.forward, z.ahead, z.block = src, nil, nil
	for _, f := range r.File {
		if f.Flags&1 != 0 {
			return refuse(f.Name, "it is encrypted")
		}
		if err := u.put(entry{f.Name, int64(f.UncompressedSize64), f.Mode(), f.Open}); err != nil {
			return z.explain(err)
		}
	}
	_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{z}, make([]byte, 64<<10))
	return z.explain(err)
}

// zipped is the bytes of a zip: with random access until its directory was read, and forward only
// after that.
type zipped struct {
	ahead   io.ReaderAt
	size    int64
	asked   int64  // number of bytes requested from ahead
	block   []byte // the last of them
	blockAt int64
	err     error

	forward io.Reader // nil until the directory was read
	at      int64     // offset of forward
	seed    maphash.Seed
	seen    map[int64]uint64 // hashes of the blocks that were read ahead, by offset
	now     maphash.Hash     // of the current block
}

// explain returns the error of zipped, if there is one, instead of the format's.
func (z *zipped) explain(err error) error {
	if z.err != nil {
		return z.err
	}
	return err
}

// ReadAt implements io.ReaderAt.
func (z *zipped) ReadAt(p []byte, off int64) (n int, err error) {
	if z.forward != nil {
		if off < z.at {
			return 0, errOrder
		}
		if _, err := io.CopyN(io.Discard, struct{ io.Reader }{z}, off-z.at); err != nil {
			return 0, err
		}
		return io.ReadFull(struct{ io.Reader }{z}, p)
	}
	if z.asked += int64(len(p)); z.asked > maxDirectory && z.err == nil {
		z.err = refuse("", "its central directory exceeds %d MiB, which must fit in memory; split the archive, or use tar", maxDirectory>>20)
	}
	for n < len(p) && z.err == nil {
		from := off + int64(n)
		if from >= z.size {
			return n, io.EOF
		}
		if start := from - from%dirBlock; z.block == nil || start != z.blockAt {
			z.load(start)
			continue
		}
		n += copy(p[n:], z.block[from-z.blockAt:])
	}
	return n, z.err
}

// load reads a block ahead.
func (z *zipped) load(start int64) {
	if z.block == nil {
		z.block = make([]byte, dirBlock)
	}
	z.blockAt, z.block = start, z.block[:min(dirBlock, z.size-start)]
	if n, err := z.ahead.ReadAt(z.block, start); n < len(z.block) {
		z.err = err
		return
	}
	z.seen[start] = maphash.Bytes(z.seed, z.block)
}

// Read reads forward, and compares the bytes with those that were read ahead.
func (z *zipped) Read(p []byte) (int, error) {
	start := z.at - z.at%dirBlock
	n, err := z.forward.Read(p[:min(int64(len(p)), start+dirBlock-z.at)])
	want, ahead := z.seen[start]
	if z.at += int64(n); ahead && n > 0 {
		if z.at-int64(n) == start {
			z.now.SetSeed(z.seed)
		}
		_, _ = z.now.Write(p[:n]) // never fails
		if (z.at == start+dirBlock || z.at == z.size) && z.now.Sum64() != want {
			z.err = damaged("two reads of its central directory differ")
			return n, z.err
		}
	}
	return n, err
}
