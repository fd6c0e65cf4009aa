package backends

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSendFile is about sources, and about kernels that send less than they are asked to.
func TestSendFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tt := range []struct {
		name string
		src  io.ReaderAt
		most []int // that it sends, call by call; the last is for all further ones
		sent string
		rest string // that src reads then
		err  error
	}{
		{"all at once", file, []int{100}, "3456", "", nil},
		{"a byte each", file, []int{1}, "3456", "", nil},
		{"of what Unpaced made", local{file}, []int{3}, "3456", "", nil},
		{"none", file, []int{0}, "", "3456", errors.ErrUnsupported},
		{"an error in between", file, []int{2, 0}, "34", "56", errors.ErrUnsupported},
		{"no file", strings.NewReader("0123456789"), []int{100}, "", "3456", errors.ErrUnsupported},
		{"no file for Unpaced", local{strings.NewReader("0123456789")}, []int{100}, "", "3456", errors.ErrUnsupported},
	} {
		src := io.NewSectionReader(tt.src, 3, 4)
		var sent []byte
		err := SendFile(src, func(f *os.File, off int64, n int) int {
			most := tt.most[0]
			tt.most = tt.most[min(1, len(tt.most)-1):]
			p := make([]byte, min(most, n))
			m, _ := f.ReadAt(p, off) // what it sent is compared
			sent = append(sent, p[:m]...)
			return m
		})
		rest, _ := io.ReadAll(src) // it is compared
		if string(sent) != tt.sent || string(rest) != tt.rest || !errors.Is(err, tt.err) {
			t.Errorf("%s: it sends %q, %v, and leaves %q; want %q, %v, %q", tt.name, sent, err, rest, tt.sent, tt.err, tt.rest)
		}
	}
}
