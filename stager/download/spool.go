package download

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// spool is a list of objects on disk: a million of them would need too much memory. It is written
// once, and can be read several times, also while it is written. The file has no name, so it
// disappears when the process ends.
type spool struct {
	file *os.File
	out  *bufio.Writer
	buf  []byte

	mu      sync.Mutex // guards out and all below
	more    sync.Cond  // signals an added entry, or the end
	written int64      // bytes in the file
	ended   bool
}

func newSpool(directory *disk.Dir) (*spool, error) {
	file, err := disk.Unnamed(directory.Private(), "prefetch.spool-"+disk.Unique())
	if err != nil {
		return nil, err
	}
	s := &spool{file: file}
	s.out, s.more.L = bufio.NewWriterSize(spoolWriter{s}, 64<<10), &s.mu
	return s, nil
}

// spoolWriter writes to the end of the file; mu is held.
type spoolWriter struct{ *spool }

func (w spoolWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	w.written += int64(n)
	return n, err
}

func (s *spool) close() error { return s.file.Close() }

// entry is an object of the list. With check a file with its name exists, and only its bytes can
// show whether it is the object.
type entry struct {
	backends.Object
	check bool
}

func (s *spool) add(obj entry) error {
	b := appendString(s.buf[:0], obj.Key)
	b = appendString(b, string(obj.Version))
	b = appendString(b, obj.Sum.String())
	b = binary.AppendVarint(b, obj.Size)
	b = binary.AppendVarint(b, obj.ModTime.Unix()) // also for the zero time
	b = binary.AppendVarint(b, int64(obj.ModTime.Nanosecond()))
	if b = append(b, 0); obj.check {
		b[len(b)-1] = 1
	}
	s.buf = b
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more.Broadcast()
	_, err := s.out.Write(b)
	return err
}

// end marks the end of the list. It may be called more than once.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.more.Broadcast()
}

// spoolReader reads the list from the beginning. It waits for more entries until the end.
type spoolReader struct {
	*spool
	at int64
}

func (r *spoolReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	for r.at == r.written && r.out.Buffered() == 0 && !r.ended {
		r.more.Wait()
	}
	var err error
	if r.at == r.written {
		err = r.out.Flush()
	}
	left := r.written - r.at
	r.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case left == 0:
		return 0, io.EOF
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), left)], r.at)
	r.at += int64(n)
	return n, err
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// all yields all entries in order, including those added later, up to the end. It stops after an
// error. Several goroutines may read concurrently.
func (s *spool) all() iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		in := spooled{Reader: bufio.NewReaderSize(&spoolReader{spool: s}, 64<<10)}
		for {
			if _, err := in.Peek(1); errors.Is(err, io.EOF) {
				return
			}
			obj, err := in.next()
			if err != nil {
				yield(entry{}, fmt.Errorf("cannot read the list of objects on disk: %w", err))
				return
			}
			if !yield(obj, nil) {
				return
			}
		}
	}
}

// spooled decodes objects from the file.
type spooled struct {
	*bufio.Reader
	buf []byte
}

func (in *spooled) next() (obj entry, err error) {
	text := func() string {
		if err != nil {
			return ""
		}
		var n uint64
		if n, err = binary.ReadUvarint(in); err != nil {
			return ""
		}
		if uint64(cap(in.buf)) < n {
			in.buf = make([]byte, n)
		}
		_, err = io.ReadFull(in, in.buf[:n])
		return string(in.buf[:n])
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
		var check byte
		check, err = in.ReadByte()
		obj.check = check != 0
	}
	if err == nil {
		obj.Sum, err = backends.ParseChecksum(sum)
	}
	return obj, err
}
