package nfs4_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/nfs4"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

const contents = "0123456789abcdefghijklmnopqrstuvwxyz"

// bubble runs a test in virtual time against a server with the file data/file. It checks that the
// client follows the protocol and leaves no state behind.
func bubble(t *testing.T, cfg nfs4.Config, run func(t *testing.T, s *nfstest.Server, c *nfs4.Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := nfstest.New()
		s.WriteFile("data/file", []byte(contents))
		c := dial(t, s, s.Dial, cfg)
		run(t, s, c)
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := s.Clients(); n != 0 {
			t.Errorf("the server knows %d clients after Close, want none", n)
		}
		if trouble := s.Trouble(); len(trouble) > 0 {
			t.Errorf("the client broke the protocol: %q", trouble)
		}
	})
}

func dial(t *testing.T, s *nfstest.Server, how rpc.Dialer, cfg nfs4.Config) *nfs4.Client {
	t.Helper()
	cfg.RPC = rpc.NewClient(how, 2, rpc.Options{})
	c, err := nfs4.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	return c
}

// open opens data/file and reads its first byte.
func open(t *testing.T, c *nfs4.Client) (remote.File, remote.Attr) {
	t.Helper()
	f, b, err := c.Open(t.Context(), "data/file", 0, 1, false)
	if err != nil || string(b.Data) != contents[:1] {
		t.Fatalf("Open: %q, %v", b.Data, err)
	}
	defer b.Release()
	return f, b.Attr
}

// reads checks that the whole file can be read.
func reads(t *testing.T, f remote.File) {
	t.Helper()
	b, err := f.ReadAt(t.Context(), 0, 100)
	if err != nil || string(b.Data) != contents || !b.EOF {
		t.Errorf("ReadAt: %q, end %t, %v; want %q", b.Data, b.EOF, err, contents)
	}
	b.Release()
}

// Every status that a server may return to any request at any time.
func TestServerDelays(t *testing.T) {
	for _, op := range []nfsv4.NfsOpnum4{nfsv4.OP_SEQUENCE, nfsv4.OP_PUTROOTFH, nfsv4.OP_LOOKUP, nfsv4.OP_OPEN, nfsv4.OP_READ, nfsv4.OP_GETATTR} {
		for _, status := range []nfsv4.Nfsstat4{nfsv4.NFS4ERR_DELAY, nfsv4.NFS4ERR_GRACE} {
			if op == nfsv4.OP_SEQUENCE && status == nfsv4.NFS4ERR_GRACE {
				continue // SEQUENCE does not return it
			}
			bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
				s.Next(op, nfstest.Refuse(status, status, status)...)
				start := time.Now()
				f, _ := open(t, c)
				if took, want := time.Since(start), (50+100+200)*time.Millisecond; took != want {
					t.Errorf("%v on %v: took %v, want %v", status, op, took, want)
				}
				if err := f.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestServerDelaysWhileAClientStarts(t *testing.T) {
	for _, op := range []nfsv4.NfsOpnum4{nfsv4.OP_EXCHANGE_ID, nfsv4.OP_CREATE_SESSION, nfsv4.OP_RECLAIM_COMPLETE, nfsv4.OP_GETATTR} {
		synctest.Test(t, func(t *testing.T) {
			s := nfstest.New()
			s.Next(op, nfstest.Refuse(nfsv4.NFS4ERR_DELAY, nfsv4.NFS4ERR_DELAY)...)
			start := time.Now()
			c := dial(t, s, s.Dial, nfs4.Config{})
			if took, want := time.Since(start), 150*time.Millisecond; took != want {
				t.Errorf("%v: took %v, want %v", op, took, want)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServerThatAlwaysDelaysIsGivenUp(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		for range 100 {
			s.Next(nfsv4.OP_OPEN, nfstest.Fault{Status: nfsv4.NFS4ERR_GRACE})
		}
		start := time.Now()
		_, _, err := c.Open(t.Context(), "data/file", 0, 1, true)
		if took := time.Since(start); !errors.Is(err, remote.ErrBusy) || took < 15*time.Second || took > 25*time.Second {
			t.Errorf("got %v after %v, want ErrBusy after 15 to 25 s", err, took)
		}
		if n := s.Count(nfsv4.OP_OPEN); n > 15 {
			t.Errorf("the server was asked %d times, want a back-off", n)
		}
	})
}

func TestSessionLossKeepsFilesOpen(t *testing.T) {
	for _, status := range []nfsv4.Nfsstat4{
		nfsv4.NFS4ERR_BADSESSION, nfsv4.NFS4ERR_DEADSESSION, nfsv4.NFS4ERR_SEQ_MISORDERED, nfsv4.NFS4ERR_BADSLOT,
		nfsv4.NFS4ERR_CONN_NOT_BOUND_TO_SESSION,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := nfstest.New()
			s.WriteFile("data/file", []byte(contents))
			c := dial(t, s, s.Dial, nfs4.Config{})
			f, _ := open(t, c)
			s.Next(nfsv4.OP_SEQUENCE, nfstest.Fault{Status: status, Do: s.ForgetSessions})
			reads(t, f)
			if opens, ids := s.Count(nfsv4.OP_OPEN), s.Count(nfsv4.OP_EXCHANGE_ID); opens != 1 || ids != 1 || s.Sessions() != 1 {
				t.Errorf("%v: %d OPEN, %d EXCHANGE_ID, %d sessions; want one of each", status, opens, ids, s.Sessions())
			}
			if err := errors.Join(f.Close(t.Context()), c.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSessionForgottenRepeatedly(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		f, _ := open(t, c)
		forget := nfstest.Fault{Status: nfsv4.NFS4ERR_BADSESSION}
		s.Next(nfsv4.OP_READ, nfstest.Fault{Do: s.ForgetSessions}, nfstest.Fault{Do: s.ForgetSessions}, nfstest.Fault{Do: s.ForgetSessions})
		s.Next(nfsv4.OP_SEQUENCE, forget, nfstest.Fault{}, forget) // also while the next session starts
		reads(t, f)
	})
}

// offline is a dialer whose network can fail.
type offline struct {
	s   *nfstest.Server
	off atomic.Bool
}

func (o *offline) dial(ctx context.Context) (net.Conn, error) {
	if o.off.Load() {
		return nil, errors.New("there is no network")
	}
	return o.s.Dial(ctx)
}

// silent cuts a client off until its lease has expired.
func (o *offline) silent() {
	o.off.Store(true)
	o.s.CutAll()
	time.Sleep(61 * time.Second)
	o.off.Store(false)
}

func TestLeaseIsAcquiredAgainAfterExpiry(t *testing.T) {
	stale := func(t *testing.T, b remote.Block, err error, _ remote.Attr) {
		if remote.StatusOf(err) != remote.Stale {
			t.Errorf("got %q, %v; want status STALE", b.Data, err)
		}
	}
	for name, tt := range map[string]struct {
		meanwhile func(s *nfstest.Server)
		want      func(t *testing.T, b remote.Block, err error, was remote.Attr)
	}{
		"the same file": {func(*nfstest.Server) {}, func(t *testing.T, b remote.Block, err error, was remote.Attr) {
			if err != nil || string(b.Data) != contents || b.Attr != was {
				t.Errorf("got %q, %+v, %v; want all of it, and %+v", b.Data, b.Attr, err, was)
			}
		}},
		"it was changed": {func(s *nfstest.Server) { s.Change("data/file", []byte("other")) }, func(t *testing.T, b remote.Block, err error, was remote.Attr) {
			if err != nil || b.Attr.FileID != was.FileID || b.Attr.Change == was.Change {
				t.Errorf("got %+v, %v; want another change counter than %+v", b.Attr, err, was)
			}
		}},
		"another file has its name": {func(s *nfstest.Server) { s.WriteFile("data/file", []byte(contents)) }, stale},
		"another, and it lives on": {func(s *nfstest.Server) {
			s.Move("data/file", "data/elsewhere")
			s.WriteFile("data/file", []byte(contents))
		}, stale},
		"it was removed":      {func(s *nfstest.Server) { s.Remove("data/file") }, stale},
		"it was renamed":      {func(s *nfstest.Server) { s.Move("data/file", "data/elsewhere") }, stale},
		"a link has its name": {func(s *nfstest.Server) { s.Symlink("x", "data/file") }, stale},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := nfstest.New()
				s.WriteFile("data/file", []byte(contents))
				net := &offline{s: s}
				c := dial(t, s, net.dial, nfs4.Config{})
				f, was := open(t, c)
				net.silent()
				tt.meanwhile(s)
				b, err := f.ReadAt(t.Context(), 0, 100)
				tt.want(t, b, err, was)
				b.Release()
				if ids := s.Count(nfsv4.OP_EXCHANGE_ID); ids != 2 {
					t.Errorf("%d EXCHANGE_ID, want 2", ids)
				}
				_ = f.Close(t.Context()) // some are closed already
				synctest.Wait()
				if n := s.Opens(); n != 0 {
					t.Errorf("%d files are left open", n)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestIdleClientKeepsItsLease(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		f, _ := open(t, c)
		before := s.Count(nfsv4.OP_SEQUENCE)
		time.Sleep(10*time.Minute + time.Second)
		if n := s.Count(nfsv4.OP_SEQUENCE) - before; n != 30 {
			t.Errorf("%d SEQUENCE in ten leases, want one each third of a lease", n)
		}
		reads(t, f)
		if opens := s.Count(nfsv4.OP_OPEN); opens != 1 {
			t.Errorf("%d OPEN, want 1: the lease was lost", opens)
		}
	})
}

func TestRevokedStateIsReopened(t *testing.T) {
	for _, status := range []nfsv4.Nfsstat4{nfsv4.NFS4ERR_EXPIRED, nfsv4.NFS4ERR_ADMIN_REVOKED} {
		bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
			f, _ := open(t, c)
			s.Revoke(status)
			reads(t, f)
			if flags := s.Flags(); flags != 0 {
				t.Errorf("%v: the server still says %#x: nobody told it that this is known", status, flags)
			}
			if n := s.Opens(); n != 1 {
				t.Errorf("%v: %d files are open, want 1", status, n)
			}
			if err := f.Close(t.Context()); err != nil || s.Opens() != 0 {
				t.Errorf("Close: %v, %d files are open", err, s.Opens())
			}
		})
	}
}

func TestRestartKeepsSessions(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		f, _ := open(t, c)
		s.SetFlags(nfsv4.SEQ4_STATUS_RESTART_RECLAIM_NEEDED)
		reads(t, f)
		synctest.Wait()
		if n, flags := s.Count(nfsv4.OP_RECLAIM_COMPLETE), s.Flags(); n != 2 || flags != 0 {
			t.Errorf("%d RECLAIM_COMPLETE, flags %#x; want a second, which clears them", n, flags)
		}
	})
}

func TestSessionHasNoBackchannel(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		f, _ := open(t, c)
		s.SetFlags(nfsv4.SEQ4_STATUS_CB_PATH_DOWN | nfsv4.SEQ4_STATUS_CB_PATH_DOWN_SESSION | nfsv4.SEQ4_STATUS_BACKCHANNEL_FAULT)
		reads(t, f)
		if n := s.Count(nfsv4.OP_CREATE_SESSION); n != 1 {
			t.Errorf("%d sessions were made, want 1: nobody needs the backchannel", n)
		}
	})
}

func TestClientWithLostSequenceStartsANewSession(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		f, _ := open(t, c)
		s.Next(nfsv4.OP_READ, nfstest.Fault{Do: s.ForgetSessions})
		s.Next(nfsv4.OP_CREATE_SESSION, nfstest.Fault{Status: nfsv4.NFS4ERR_SEQ_MISORDERED})
		reads(t, f)
		if opens := s.Count(nfsv4.OP_OPEN); opens != 2 {
			t.Errorf("%d OPEN, want 2: another life has nothing open", opens)
		}
	})
}

func TestVerifierDetectsDataLostByRestart(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		f, err := c.Create(t.Context(), "data/new")
		if err != nil {
			t.Fatal(err)
		}
		fill := func(p []byte) error { copy(p, contents); return nil }
		_, wrote, err := f.WriteAt(t.Context(), 0, len(contents), fill)
		if err != nil {
			t.Fatal(err)
		}
		s.Restart()
		durable, _, err := f.Commit(t.Context())
		if err != nil || durable == wrote {
			t.Errorf("COMMIT after a restart: verifier %x, %v; want another than %x", durable, err, wrote)
		}
		_, wrote, err = f.WriteAt(t.Context(), 0, len(contents), fill)
		if err != nil {
			t.Fatal(err)
		}
		if durable, _, err = f.Commit(t.Context()); err != nil || durable != wrote {
			t.Errorf("COMMIT of what was written again: verifier %x, %v; want %x", durable, err, wrote)
		}
		if got, _ := s.ReadFile("data/new"); string(got) != contents {
			t.Errorf("the file has %q, want %q", got, contents)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestDirectoryCycleEnds(t *testing.T) {
	for name, next := range map[string]func(cookie uint64) uint64{
		"stands still": func(uint64) uint64 { return 3 },
		"goes back":    func(uint64) uint64 { return 0 },
		"turns":        func(c uint64) uint64 { return 3 + (c+1)%5 },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := nfstest.New()
			s.List = func(cookie uint64) nfsv4.Dirlist4 {
				return nfsv4.Dirlist4{Entries: &nfsv4.Entry4{Cookie: next(cookie), Name: "again", Attrs: nfsv4.Fattr4{}}}
			}
			c := dial(t, s, s.Dial, nfs4.Config{})
			var format *remote.FormatError
			if err := c.ReadDir(t.Context(), "", func(remote.Entry) error { return nil }); !errors.As(err, &format) {
				t.Errorf("a directory that %s: %v, want a FormatError", name, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServersWithSmallLimits(t *testing.T) {
	bubble(t, nfs4.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs4.Client) {
		s.MaxRead, s.MaxWrite = 5, 7
		_, b, err := c.Open(t.Context(), "data/file", 2, 10, true)
		if err != nil || string(b.Data) != contents[2:7] || b.EOF {
			t.Errorf("a short read: %q, end %t, %v", b.Data, b.EOF, err)
		}
		f, err := c.Create(t.Context(), "data/new")
		if err != nil {
			t.Fatal(err)
		}
		if n, _, err := f.WriteAt(t.Context(), 0, 10, func(p []byte) error { copy(p, contents); return nil }); n != 7 || err != nil {
			t.Errorf("a short write = %d, %v; want 7", n, err)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
