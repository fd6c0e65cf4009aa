package nfs4_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/nfs4"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// A request that is not idempotent is executed once, even if its response is lost with the
// connection.
func TestResponsesLost(t *testing.T) {
	for name, tt := range map[string]struct {
		op      nfsv4.NfsOpnum4
		do      func(ctx context.Context, c *nfs4.Client) error
		there   string // contents of the directory afterwards
		replays int
	}{
		"RENAME": {nfsv4.OP_RENAME, func(ctx context.Context, c *nfs4.Client) error {
			f, _, err := c.Open(ctx, "data/file", 0, 1, false)
			if err != nil {
				return err
			}
			_, err = c.Rename(ctx, f, "data/file", "data/new")
			return errors.Join(err, f.Close(ctx))
		}, "new", 1},
		"LINK": {nfsv4.OP_LINK, func(ctx context.Context, c *nfs4.Client) error {
			f, _, err := c.Open(ctx, "data/file", 0, 1, false)
			if err != nil {
				return err
			}
			_, err = c.Link(ctx, f, "data/file", "data/new")
			return errors.Join(err, f.Close(ctx))
		}, "new", 1},
		"REMOVE": {nfsv4.OP_REMOVE, func(ctx context.Context, c *nfs4.Client) error {
			return c.Remove(ctx, "data/file", remote.Regular)
		}, "", 1},
		"MKDIR": {nfsv4.OP_CREATE, func(ctx context.Context, c *nfs4.Client) error {
			return c.Mkdir(ctx, "data/directory")
		}, "directory file", 1},
		"OPEN": {nfsv4.OP_OPEN, func(ctx context.Context, c *nfs4.Client) error {
			f, err := c.Create(ctx, "data/new")
			if err != nil {
				return err
			}
			return f.Close(ctx)
		}, "file new", 1},
		// The server need not cache responses to idempotent requests.
		"READ": {nfsv4.OP_READ, func(ctx context.Context, c *nfs4.Client) error {
			_, b, err := c.Open(ctx, "data/file", 0, 100, true)
			if err == nil && string(b.Data) != contents {
				err = fmt.Errorf("it reads %q", b.Data)
			}
			return err
		}, "file", 1},
		"READDIR": {nfsv4.OP_READDIR, func(ctx context.Context, c *nfs4.Client) error {
			return c.ReadDir(ctx, "data", func(remote.Entry) error { return nil })
		}, "file", 1},
	} {
		for _, cut := range []nfstest.Cut{nfstest.CutBefore, nfstest.CutAfter} {
			t.Run(fmt.Sprint(name, cut), func(t *testing.T) {
				bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
					s.Next(tt.op, nfstest.Fault{Cut: cut})
					if err := tt.do(t.Context(), c); err != nil {
						t.Error(err)
					}
					if got := strings.Join(s.Names("data"), " "); got != tt.there {
						t.Errorf("the directory has %q, want %q", got, tt.there)
					}
					want := 0
					if cut == nfstest.CutAfter {
						want = tt.replays
					}
					if n := s.Replays(); n != want {
						t.Errorf("%d requests were answered from their slot, want %d", n, want)
					}
				})
			})
		}
	}
}

func TestSessionResponseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := nfstest.New()
		s.Next(nfsv4.OP_EXCHANGE_ID, nfstest.Fault{Cut: nfstest.CutAfter})
		s.Next(nfsv4.OP_CREATE_SESSION, nfstest.Fault{Cut: nfstest.CutAfter})
		c := dial(t, s, s.Dial, nfs4.Config{})
		if s.Clients() != 1 || s.Sessions() != 1 || s.Replays() != 1 {
			t.Errorf("%d clients, %d sessions, %d replays; want one of each", s.Clients(), s.Sessions(), s.Replays())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// If a caller gives up, its slot must not be used before the response arrives or is known to be
// lost.
func TestCallersCancel(t *testing.T) {
	for name, end := range map[string]func(s *nfstest.Server, release func()){
		"the answer comes late":     func(_ *nfstest.Server, release func()) { time.Sleep(5 * time.Second); release() },
		"the connection is cut":     func(s *nfstest.Server, release func()) { s.CutAll(); release() },
		"the connection is silent":  func(_ *nfstest.Server, release func()) { time.Sleep(30 * time.Second); release() },
		"the session is forgotten":  func(s *nfstest.Server, release func()) { s.ForgetSessions(); release() },
		"the server is started new": func(s *nfstest.Server, release func()) { s.Restart(); release() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nfs4.Config{Slots: 1}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
				hold := make(chan struct{})
				s.Next(nfsv4.OP_OPEN, nfstest.Fault{Hold: hold})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				if _, _, err := c.Open(ctx, "data/file", 0, 1, true); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Open with an end: %v", err)
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("the caller waited %v for a context of 1 s", took)
				}
				var ended sync.WaitGroup
				ended.Go(func() { end(s, func() { close(hold) }) })
				defer ended.Wait()
				for range 3 { // the only slot is usable again
					f, _ := open(t, c)
					reads(t, f)
					if err := f.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// The server caches the response to an abandoned request. It must not be taken for the response to
// the next request on the slot.
func TestResponseOfACanceledRequestIsDiscarded(t *testing.T) {
	for _, cut := range []nfstest.Cut{nfstest.CutBefore, nfstest.CutAfter} {
		bubble(t, nfs4.Config{Slots: 1}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
			hold := make(chan struct{})
			s.Next(nfsv4.OP_OPEN, nfstest.Fault{Hold: hold, Cut: cut})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.Create(ctx, "data/one"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Create with an end: %v", err)
			}
			close(hold)
			f, err := c.Create(t.Context(), "data/two")
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.WriteAt(t.Context(), 0, 3, func(p []byte) error { copy(p, "two"); return nil }); err != nil {
				t.Error(err)
			}
			one, _ := s.ReadFile("data/one")
			two, _ := s.ReadFile("data/two")
			if len(one) != 0 || string(two) != "two" {
				t.Errorf("the files have %q and %q, want nothing and %q", one, two, "two")
			}
			if err := f.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
