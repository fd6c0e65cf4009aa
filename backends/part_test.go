package backends_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

func TestPartReadsItsBytesOnly(t *testing.T) {
	p := backends.NewPart(strings.NewReader("0123456789"), 3, 4)
	for range 2 { // a reader begins at the first byte
		if err := iotest.TestReader(p.Reader(), []byte("3456")); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		off  int64
		n    int
		want string
		err  error
	}{
		{0, 4, "3456", nil},
		{1, 2, "45", nil},
		{2, 4, "56", io.EOF},
		{0, 0, "", nil},
		{4, 1, "", io.EOF},
		{-1, 1, "", io.EOF},
	} {
		b := make([]byte, tt.n)
		n, err := p.ReadAt(b, tt.off)
		if got := string(b[:n]); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("ReadAt of %d bytes at %d = %q, %v; want %q, %v", tt.n, tt.off, got, err, tt.want, tt.err)
		}
	}
	if got := p.Size(); got != 4 {
		t.Errorf("Size = %d, want 4", got)
	}
}

// A file that another process truncates is a failure of this machine, not the end of the part.
func TestPartOfTruncatedFileIsLocalError(t *testing.T) {
	p := backends.NewPart(strings.NewReader("01234"), 3, 4)
	for _, part := range []*backends.Part{p, p.Unpaced()} {
		got, err := io.ReadAll(part.Reader())
		var local *backends.LocalError
		if string(got) != "34" || !errors.As(err, &local) || errors.Is(err, io.EOF) {
			t.Errorf("ReadAll = %q, %v; want 34 and a LocalError", got, err)
		}
	}
}

// TestPartSendsFile covers sources, and kernels that send fewer bytes than requested.
func TestPartSendsFile(t *testing.T) {
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
		rest string // what can be read behind the bytes sent
		err  error
	}{
		{"all at once", file, []int{100}, "3456", "", nil},
		{"a byte each", file, []int{1}, "3456", "", nil},
		{"none", file, []int{0}, "", "3456", errors.ErrUnsupported},
		{"an error in between", file, []int{2, 0}, "34", "56", errors.ErrUnsupported},
		{"no file", strings.NewReader("0123456789"), []int{100}, "", "3456", errors.ErrUnsupported},
	} {
		var sent []byte
		p := backends.NewPart(tt.src, 3, 4)
		done, err := p.SendFile(t.Context(), func(f *os.File, off int64, n int) int {
			most := tt.most[0]
			tt.most = tt.most[min(1, len(tt.most)-1):]
			b := make([]byte, min(most, n))
			m, _ := f.ReadAt(b, off) // the sent bytes are compared
			sent = append(sent, b[:m]...)
			return m
		})
		rest, _ := io.ReadAll(io.NewSectionReader(p, done, p.Size()-done)) // it is compared
		if string(sent) != tt.sent || done != int64(len(sent)) || string(rest) != tt.rest || !errors.Is(err, tt.err) {
			t.Errorf("%s: it sends %q, returns %d, %v, and leaves %q; want %q, %d, %v, %q", tt.name, sent, done, err, rest, tt.sent, len(tt.sent), tt.err, tt.rest)
		}
	}
}

// sendsInCommit is a protocol that sends everything with sendfile in Commit, over a slow link.
type sendsInCommit struct {
	backends.Backend
	backends.PartWriter
	src *backends.Part
}

func (s *sendsInCommit) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return s, nil
}

func (s *sendsInCommit) WritePart(_ context.Context, _ int64, src *backends.Part) error {
	s.src = src.Unpaced()
	return nil
}

func (s *sendsInCommit) Abort() error { return nil }

func (s *sendsInCommit) Commit(ctx context.Context) (backends.Object, error) {
	_, err := s.src.SendFile(ctx, func(*os.File, int64, int) int {
		time.Sleep(29 * time.Second) // in virtual time
		if ctx.Err() != nil {
			return 0
		}
		return 1
	})
	return backends.Object{}, err
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

// sendsParts is a protocol that does with a part what a test says.
type sendsParts struct {
	backends.Backend
	send func(ctx context.Context, p *backends.Part) error
}

func (s sendsParts) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return s, nil
}

func (s sendsParts) WritePart(ctx context.Context, _ int64, src *backends.Part) error {
	return s.send(ctx, src)
}

func (sendsParts) Abort() error                                    { return nil }
func (sendsParts) Commit(context.Context) (backends.Object, error) { return backends.Object{}, nil }

// countedFile is a source that counts the bytes sent, with or without a read.
type countedFile struct {
	uncountedFile
	sent *atomic.Int64
}

func (c countedFile) ReadAt(p []byte, _ int64) (int, error) {
	c.sent.Add(int64(len(p)))
	return len(p), nil
}
func (c countedFile) Sent(_ int64, n int)    { c.sent.Add(int64(n)) }
func (c countedFile) Uncounted() io.ReaderAt { return c.uncountedFile }

type uncountedFile struct{ file *os.File }

func (uncountedFile) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (u uncountedFile) File() *os.File                      { return u.file }
func (uncountedFile) Sent(int64, int)                       {}

// What is sent, by a read or from a file, keeps to the bandwidth limit, gives way to others and counts.
// What is only read does not.
func TestPartIsPacedWhenItIsSent(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size, perSecond = 4 << 20, 1 << 20
	read := func(_ context.Context, p *backends.Part) error {
		n, err := io.Copy(io.Discard, p.Reader())
		return errors.Join(err, wantAll(n, p))
	}
	sendFile := func(ctx context.Context, p *backends.Part) error {
		n, err := p.SendFile(ctx, func(_ *os.File, _ int64, n int) int { return (n + 1) / 2 })
		return errors.Join(err, wantAll(n, p))
	}
	for _, tt := range []struct {
		name string
		send func(context.Context, *backends.Part) error
		sent int64
		took time.Duration
	}{
		{"read", read, size, 3 * time.Second},
		{"sent from its file", sendFile, size, 3 * time.Second},
		{"read, unpaced", func(ctx context.Context, p *backends.Part) error { return read(ctx, p.Unpaced()) }, 0, 0},
		{"sent from its file, unpaced", func(ctx context.Context, p *backends.Part) error { return sendFile(ctx, p.Unpaced()) }, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var sent, gaveWay atomic.Int64
			store := backends.NewStore(sendsParts{mem.New(), tt.send}, "mem://test", backends.Options{
				Bandwidth: rate.NewLimiter(perSecond, perSecond),
				Yield: func(_ context.Context, n int) error {
					gaveWay.Add(int64(n))
					return nil
				},
			})
			start := time.Now()
			_, err := store.Put(t.Context(), "k", countedFile{uncountedFile{file}, &sent}, size, backends.CreateOptions{})
			took := time.Since(start).Round(time.Second)
			if err != nil || sent.Load() != tt.sent || gaveWay.Load() != tt.sent || took != tt.took {
				t.Errorf("%s: %v, %d bytes count, %d give way, after %v; want %d, %[6]d, %v", tt.name, err, sent.Load(), gaveWay.Load(), took, tt.sent, tt.took)
			}
		})
	}
}

func wantAll(n int64, p *backends.Part) error {
	if n != p.Size() {
		return fmt.Errorf("%d of %d bytes", n, p.Size())
	}
	return nil
}
