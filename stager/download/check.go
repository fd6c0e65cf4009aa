package download

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// A file with its object's size and time, or its size if the store has no times, may be the object: the dataset was copied by other means,
// the record was lost, or the file's owner was changed. It may also be another file that was put
// there, or that was changed and had its time restored. Only its bytes can tell.

// check reads a file that looks like its object. If it is the object, check records it, so that it
// need not be read again; otherwise check refuses it, or replaces it if that is allowed.
func (p *run) check(ctx context.Context, obj backends.Object) error {
	same, now, err := p.holds(ctx, obj)
	if err != nil {
		return err
	}
	switch {
	case same:
		if err := p.record.add(obj, now.ModTime, now); err != nil {
			return local("the record of this run in "+disk.Private, err)
		}
		p.warm(obj)
		return nil
	case !p.cfg.Overwrite:
		return p.inTheWay(obj.Key, "it looks like the object but has different bytes, and stager did not write it")
	}
	return p.small(ctx, obj, 0) // the barrier is open, so no place in the spool is needed
}

// holds reports whether an object's file has the object's bytes, and returns the state of the file
// that was compared.
func (p *run) holds(ctx context.Context, obj backends.Object) (bool, disk.State, error) {
	file, err := disk.OpenFile(p.dir.Root(), obj.Key, os.O_RDONLY, 0)
	var odd *disk.NotRegularError
	if errors.As(err, &odd) {
		return false, disk.State{}, nil
	}
	if err != nil {
		return false, disk.State{}, local(obj.Key, err)
	}
	defer file.Close() // opened for reading
	before, err := p.dir.StateOf(file)
	if err != nil || before.Size != obj.Size {
		return false, before, maybeLocal(obj.Key, err)
	}
	same, err := p.sameBytes(ctx, obj, file)
	if err != nil || !same {
		return false, before, err
	}
	after, err := p.dir.StateOf(file)
	return after == before, after, maybeLocal(obj.Key, err)
}

// maybeLocal is local, but returns nil for nil.
func maybeLocal(name string, err error) error {
	if err == nil {
		return nil
	}
	return local(name, err)
}

// sameBytes compares an open file with the checksum that the store has of an object, or with the
// object's bytes if there is none.
func (p *run) sameBytes(ctx context.Context, obj backends.Object, file *os.File) (bool, error) {
	if obj.Size == 0 {
		return true, nil
	}
	t := &transfer{store: p.cfg.Store, obj: obj, reported: obj.Sum}
	stated, err := t.reportedSum(ctx)
	if err != nil {
		return false, err
	}
	in := cancelable{ctx, io.NewSectionReader(file, 0, obj.Size)}
	if sum := stated.Algorithm.New(); sum != nil {
		if _, err := io.Copy(sum, in); err != nil {
			return false, unread(ctx, t, err)
		}
		return backends.SumOf(stated.Algorithm, sum) == stated, nil
	}
	s := newStream(ctx, p.cfg.Store, obj, stated, nil)
	defer s.close()
	return equal(in, s, func(err error) error { return unread(ctx, t, err) })
}

// unread returns the error for a file that could not be read.
func unread(ctx context.Context, t *transfer, err error) error {
	if ctx.Err() != nil {
		return t.fail(backends.Canceled, context.Cause(ctx))
	}
	return local(t.obj.Key, err)
}

// equal compares two readers. fail wraps read errors of the file.
func equal(file, object io.Reader, fail func(error) error) (bool, error) {
	const piece = 256 << 10
	mine, theirs := make([]byte, piece), bufio.NewReaderSize(object, piece)
	for {
		n, err := io.ReadFull(file, mine)
		if n == 0 && errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, fail(err)
		}
		for got := mine[:n]; len(got) > 0; {
			want, err := theirs.Peek(min(len(got), piece))
			if err != nil {
				return false, err
			}
			if !bytes.Equal(got[:len(want)], want) {
				return false, nil
			}
			_, _ = theirs.Discard(len(want)) // the bytes are buffered
			got = got[len(want):]
		}
	}
}

// cancelable is a reader that stops when a context ends.
type cancelable struct {
	ctx  context.Context // of the object: io.Reader has no context parameter
	from io.Reader
}

func (c cancelable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.from.Read(p)
}
