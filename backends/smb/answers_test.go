package smb

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

func TestServerFallsSilent(t *testing.T) {
	s := need(t, "plain")
	p := newHole(t, s.Env["SMB_SERVER"])
	b := hasty(p.address, s.Getenv())
	b.pool.dialer.connectWithin = 5 * time.Second // for logins at a busy server
	defer b.Close()
	w, err := b.Create(t.Context(), "silent/k", backends.CreateOptions{Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	obj, err := w.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	body, err := b.OpenRange(t.Context(), obj, 0, obj.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	p.silent.Store(true)
	start := time.Now()
	_, rerr := io.Copy(io.Discard, body)
	_, serr := b.Stat(t.Context(), "silent/k")
	if took := time.Since(start); backends.KindOf(rerr) != backends.Unavailable || backends.KindOf(serr) != backends.Unavailable || took > 20*time.Second {
		t.Errorf("from a silent server after %v: read %v, stat %v; want kind unavailable within seconds", took, rerr, serr)
	}
	if !strings.Contains(fmt.Sprint(rerr), "silent") {
		t.Errorf("read: %v; want it to tell of the silence", rerr)
	}
	p.silent.Store(false)
	if _, err := b.Stat(t.Context(), "silent/k"); err != nil {
		t.Errorf("when it speaks again: %v", err)
	}
	if err := b.Delete(t.Context(), "silent/k"); err != nil {
		t.Error(err)
	}
}

// The server creates the file, but the connection ends before the response. This once left a file
// under its temporary name, which listings omit.
func TestFileWithLostCreateResponseIsRemoved(t *testing.T) {
	s := need(t, "plain")
	p := newHole(t, s.Env["SMB_SERVER"])
	b := hasty(p.address, s.Getenv())
	b.pool.dialer.connectWithin, b.pool.dialer.silence = connectWithin, silence
	defer b.Close()
	left := func() []string {
		names, _ := filepath.Glob(filepath.Join(s.Env["SMB_DIR"], "unanswered", fileshare.Temporary+"*"))
		return names
	}
	create := func() error {
		w, err := b.Create(t.Context(), "unanswered/k", backends.CreateOptions{Size: 0})
		if err != nil {
			return err
		}
		_, err = w.Commit(t.Context())
		return err
	}
	for range sessions { // creates the directory and dials all sessions
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	p.cuts.Store(true)
	if err := create(); backends.KindOf(err) != backends.Unavailable {
		t.Fatalf("Create = %v, want kind unavailable", err)
	}
	if got := left(); len(got) != 1 {
		t.Fatalf("%q are left at first, want one file", got)
	}
	// The server may take a moment to notice that the file is closed.
	for i := 0; len(left()) > 0; i++ {
		if err := create(); err != nil || i == 1000 {
			t.Fatalf("Create = %v, and %q are left", err, left())
		}
	}
}

// hole is a proxy that can drop all data.
type hole struct {
	address string
	silent  atomic.Bool
	cuts    atomic.Bool // breaks one connection at the next response of the server
}

func newHole(t *testing.T, to string) *hole {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	h := &hole{address: l.Addr().String()}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			pass := func(to, from net.Conn, answers bool) {
				defer to.Close()
				defer from.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := from.Read(buf)
					if err != nil {
						return
					}
					if answers && h.cuts.CompareAndSwap(true, false) {
						return
					}
					if h.silent.Load() {
						continue
					}
					if _, err := to.Write(buf[:n]); err != nil {
						return
					}
				}
			}
			go pass(out, in, false)
			go pass(in, out, true)
		}
	}()
	return h
}
