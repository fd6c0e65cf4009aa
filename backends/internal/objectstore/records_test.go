package objectstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
)

// piecemeal is a connection on which bytes arrive in pieces of a size, and then an error.
type piecemeal struct {
	net.Conn
	left  []byte
	piece int
	err   error // comes with the last bytes, too
}

func (c *piecemeal) Read(p []byte) (int, error) {
	n := copy(p, c.left[:min(c.piece, len(c.left))])
	if c.left = c.left[n:]; len(c.left) == 0 {
		return n, c.err
	}
	return n, nil
}

// TestReadsEndWithRecords reads records of every two lengths, with every combination of how they arrive
// and of how much is asked for.
func TestReadsEndWithRecords(t *testing.T) {
	lengths := []int{0, 1, 470, 1208, 9000, 16401, 16640}
	broken := errors.New("reset")
	for _, a := range lengths {
		for _, b := range lengths {
			var stream []byte
			var ends []int
			for i, n := range []int{a, b, b, a} {
				header := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(n))
				stream = append(append(stream, header...), bytes.Repeat([]byte{byte(i + 1)}, n)...)
				ends = append(ends, len(stream))
			}
			for _, piece := range []int{1, 4, 5, 1448, 16405, 16406, 16407, 1 << 20} {
				for _, size := range []int{1, 5, 517, 16406, 18432} {
					if (piece == 1 || size == 1) && len(stream) > 4000 {
						continue // it takes long and shows nothing new
					}
					conn := &recordConn{Conn: &piecemeal{left: slices.Clone(stream), piece: piece, err: broken}}
					var got []byte
					var err error
					for buf := make([]byte, size); err == nil; {
						next := ends[slices.IndexFunc(ends, func(end int) bool { return end > len(got) || end == len(stream) })]
						var n int
						n, err = conn.Read(buf)
						if got = append(got, buf[:n]...); len(got) > next {
							t.Fatalf("records of %d and %d, in pieces of %d, by %d: a read ended at byte %d, want at most %d", a, b, piece, size, len(got), next)
						}
					}
					if !errors.Is(err, broken) || !bytes.Equal(got, stream) {
						t.Fatalf("records of %d and %d, in pieces of %d, by %d: got %d bytes and %v, want all %d and %v", a, b, piece, size, len(got), err, len(stream), broken)
					}
					if conn.early != nil {
						t.Fatalf("records of %d and %d, in pieces of %d, by %d: a buffer is kept", a, b, piece, size)
					}
				}
			}
		}
	}
}

// FuzzRecords passes whatever a server sends, records or not.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), 7, 3)
	f.Add([]byte{23, 3, 3, 0, 0, 23, 3, 3, 0, 2, 'h', 'i', 23}, 100, 100)
	f.Fuzz(func(t *testing.T, stream []byte, piece, size int) {
		if piece < 1 || size < 1 || size > 1<<16 {
			return
		}
		conn := &recordConn{Conn: &piecemeal{left: slices.Clone(stream), piece: piece, err: io.EOF}}
		var got []byte
		for {
			buf := make([]byte, size)
			n, err := conn.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, stream) {
			t.Errorf("got %q, want %q", got, stream)
		}
	})
}
