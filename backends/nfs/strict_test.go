package nfs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/nfs/internal/nfs4"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// needStrict returns a server with a short lease and a grace period after its start.
func needStrict(t *testing.T) *live.Server {
	t.Helper()
	return live.Start(t, "nfs", "-lease=4s", "-grace=8s")
}

// dialStrict returns a client of the strict server that logs to log.
func dialStrict(t *testing.T, address string, log *bytes.Buffer) *nfs4.Client {
	t.Helper()
	c, err := nfs4.Dial(t.Context(), nfs4.Config{
		RPC: rpc.NewClient(func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}, 1, rpc.Options{}),
		Credential: rpc.System("test", 0, 0, nil),
		Log:        slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A real server counts real seconds, so these tests take some time.

func TestLeaseOfARealServerExpires(t *testing.T) {
	strict := needStrict(t)
	name := filepath.Join(strict.Env["NFS_DIR"], "lease")
	if err := os.WriteFile(name, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWire(t, strict.Env["NFS_SERVER"], nil)
	var log bytes.Buffer
	c := dialStrict(t, w.listener.Addr().String(), &log)
	f, first, err := c.Open(t.Context(), "data/lease", 0, 6, false)
	if err != nil {
		t.Fatal(err)
	}
	was := first.Attr
	first.Release()
	w.stall()
	time.Sleep(10 * time.Second)
	w.release()
	b, err := f.ReadAt(t.Context(), 0, 6)
	if err != nil || string(b.Data) != "before" || b.Attr != was {
		t.Errorf("read after the lease: %q, %+v, %v; want what was there before, %+v", b.Data, b.Attr, err, was)
	}
	b.Release()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "session lost") {
		t.Errorf("the lease did not expire, so that nothing was shown: %s", log.String())
	}
}

func TestGracePeriodOfARealServer(t *testing.T) {
	strict := needStrict(t)
	if err := os.WriteFile(filepath.Join(strict.Env["NFS_DIR"], "grace"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A client that never returns: the grace period of the server waits for it.
	w := newWire(t, strict.Env["NFS_SERVER"], nil)
	var log bytes.Buffer
	gone := dialStrict(t, w.listener.Addr().String(), &log)
	_, b, err := gone.Open(t.Context(), "data/grace", 0, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	w.stall()
	strict.Order(t, "kill")
	strict.Order(t, "start")

	c := dialStrict(t, strict.Env["NFS_SERVER"], new(bytes.Buffer))
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, _, err := c.Open(short, "data/grace", 0, 1, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open within the period of grace: %v, want it to wait", err)
	}
	_, b, err = c.Open(t.Context(), "data/grace", 0, 1, true)
	if err != nil || string(b.Data) != "x" {
		t.Errorf("open with patience: %q, %v (%v)", b.Data, err, remote.StatusOf(err))
	}
	b.Release()
}
