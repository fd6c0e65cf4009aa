package fetch

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// spool is a list of objects on disk, written once and then read once: a million of
// them would be too much for memory. It has no name, so it leaves nothing behind
// whatever ends the process.
type spool struct {
	file *os.File
	out  *bufio.Writer
	buf  []byte
}

func newSpool(folder *disk.Folder) (*spool, error) {
	const name = disk.Private + "/prefetch.spool"
	file, err := folder.Root().OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := folder.Root().Remove(name); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &spool{file: file, out: bufio.NewWriterSize(file, 64<<10)}, nil
}

func (s *spool) close() error { return s.file.Close() }

func (s *spool) add(obj backends.Object) error {
	b := appendString(s.buf[:0], obj.Key)
	b = appendString(b, string(obj.Version))
	b = appendString(b, obj.Sum.String())
	b = binary.AppendVarint(b, obj.Size)
	b = binary.AppendVarint(b, obj.ModTime.Unix()) // also of the zero time
	b = binary.AppendVarint(b, int64(obj.ModTime.Nanosecond()))
	s.buf = b
	_, err := s.out.Write(b)
	return err
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// all yields what was added, in that order. After an error nothing follows.
func (s *spool) all() iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		err := s.out.Flush()
		if err == nil {
			_, err = s.file.Seek(0, io.SeekStart)
		}
		if err != nil {
			yield(backends.Object{}, err)
			return
		}
		in := bufio.NewReaderSize(s.file, 64<<10)
		for {
			if _, err := in.Peek(1); errors.Is(err, io.EOF) {
				return
			}
			obj, err := s.next(in)
			if err != nil {
				yield(backends.Object{}, fmt.Errorf("the list of objects on disk cannot be read: %w", err))
				return
			}
			if !yield(obj, nil) {
				return
			}
		}
	}
}

func (s *spool) next(in *bufio.Reader) (obj backends.Object, err error) {
	text := func() string {
		if err != nil {
			return ""
		}
		var n uint64
		if n, err = binary.ReadUvarint(in); err != nil {
			return ""
		}
		if uint64(cap(s.buf)) < n {
			s.buf = make([]byte, n)
		}
		_, err = io.ReadFull(in, s.buf[:n])
		return string(s.buf[:n])
	}
	number := func() (v int64) {
		if err == nil {
			v, err = binary.ReadVarint(in)
		}
		return v
	}
	obj.Key, obj.Version = text(), backends.Version(text())
	sum := text()
	obj.Size = number()
	seconds, nanos := number(), number()
	if obj.ModTime = time.Unix(seconds, nanos); obj.ModTime.IsZero() {
		obj.ModTime = time.Time{}
	}
	if err == nil {
		obj.Sum, err = backends.ParseChecksum(sum)
	}
	return obj, err
}
