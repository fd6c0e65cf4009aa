package backends_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// lending is a memory store whose readers expose pieces of 1,000 bytes and break regularly.
type lending struct {
	*mem.Backend
	breaks int
}

func (l *lending) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	body, err := l.Backend.OpenRange(ctx, obj, off, n)
	return &buffered{body, l, make([]byte, 1000)}, err
}

type buffered struct {
	io.ReadCloser
	of   *lending
	lent []byte // all pieces in order; each is valid until the next
}

func (l *buffered) Read([]byte) (int, error) { return 0, errors.New("what lends need not be read") }

func (l *buffered) NextBuffer() ([]byte, error) {
	n, err := io.ReadFull(l.ReadCloser, l.lent)
	if l.of.breaks > 0 && l.lent[0]%2 == 0 {
		l.of.breaks--
		return nil, &backends.Error{Kind: backends.Unavailable, Err: errors.New("connection reset")}
	}
	if n > 0 {
		err = nil
	}
	return l.lent[:n], err
}

func TestBufferedReaderBytesAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, off = 40_321, 7
		b := &lending{mem.New(), 3}
		store := backends.NewStore(b, "mem://test", backends.Options{})
		obj := b.Generate("k", size)
		got, h := make([]byte, size), backends.CRC64NVME.New()
		if _, err := store.ReadRange(t.Context(), obj, off, -1, buffer(got), h); err != nil || b.breaks != 0 {
			t.Fatalf("%v, and %d breaks are left; want none", err, b.breaks)
		}
		want := conformance.ContentsOf("k", size).Bytes()[off:]
		sum := backends.CRC64NVME.New()
		sum.Write(want)
		if string(got[off:]) != string(want) || string(h.Sum(nil)) != string(sum.Sum(nil)) {
			t.Error("the bytes or their sum are not those of the object")
		}
		obj.Size++
		if _, err := store.ReadRange(t.Context(), obj, 0, -1, buffer(make([]byte, size+1)), nil); backends.KindOf(err) != backends.Corrupt {
			t.Errorf("of an object that ends early: %v, want kind corrupt", err)
		}
	})
}
