package backends_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// TestSendFile covers sources, and kernels that send fewer bytes than requested.
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
		most []int // bytes sent per call; the last value repeats
		sent string
		rest string // what src returns afterwards
		err  error
	}{
		{"all at once", file, []int{100}, "3456", "", nil},
		{"a byte each", file, []int{1}, "3456", "", nil},
		{"none", file, []int{0}, "", "3456", errors.ErrUnsupported},
		{"an error in between", file, []int{2, 0}, "34", "56", errors.ErrUnsupported},
		{"no file", strings.NewReader("0123456789"), []int{100}, "", "3456", errors.ErrUnsupported},
	} {
		src := io.NewSectionReader(tt.src, 3, 4)
		var sent []byte
		err := backends.SendFile(t.Context(), src, func(f *os.File, off int64, n int) int {
			most := tt.most[0]
			tt.most = tt.most[min(1, len(tt.most)-1):]
			p := make([]byte, min(most, n))
			m, _ := f.ReadAt(p, off) // the sent bytes are compared
			sent = append(sent, p[:m]...)
			return m
		})
		rest, _ := io.ReadAll(src) // it is compared
		if string(sent) != tt.sent || string(rest) != tt.rest || !errors.Is(err, tt.err) {
			t.Errorf("%s: it sends %q, %v, and leaves %q; want %q, %v, %q", tt.name, sent, err, rest, tt.sent, tt.err, tt.rest)
		}
	}
}

// sendsInCommit is a protocol that sends everything with sendfile in Commit, over a slow link.
type sendsInCommit struct {
	backends.Backend
	backends.PartWriter
	src *io.SectionReader
}

func (s *sendsInCommit) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return s, nil
}

func (s *sendsInCommit) WritePart(_ context.Context, _ int64, src *io.SectionReader) error {
	s.src = backends.Unpaced(src)
	return nil
}

func (s *sendsInCommit) Abort() error { return nil }

func (s *sendsInCommit) Commit(ctx context.Context) (backends.Object, error) {
	return backends.Object{}, backends.SendFile(ctx, s.src, func(*os.File, int64, int) int {
		time.Sleep(29 * time.Second) // in virtual time
		if ctx.Err() != nil {
			return 0
		}
		return 1
	})
}

// An object of 8 MiB over a link that takes minutes for it was cancelled as stalled.
func TestWatchdogCountsSendfileProgress(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	synctest.Test(t, func(t *testing.T) {
		store := backends.NewStore(&sendsInCommit{Backend: mem.New()}, "mem://test", backends.Options{StallAfter: 30 * time.Second})
		if _, err := store.Put(t.Context(), "k", file, 10, backends.CreateOptions{}); err != nil {
			t.Errorf("it is %v, want that nothing is wrong", err)
		}
	})
}
