package nfs3_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/nfs3"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// Procedure numbers of RFC 1813.
const (
	procLookup = 3
	procRead   = 6
	procRename = 14
)

// connect mounts the whole tree of a server.
func connect(ctx context.Context, s *nfstest.Server, cfg nfs3.Config) (*nfs3.Client, error) {
	var err error
	cfg.RPC = rpc.NewClient(s.Dial, 2, rpc.Options{})
	if cfg.Root, err = nfs3.Mount(ctx, cfg.RPC, cfg.Credential, "/"); err != nil {
		return nil, err
	}
	return nfs3.Dial(ctx, cfg)
}

func Example() {
	ctx := context.Background()
	server := nfstest.New()
	server.WriteFile("export/greeting", []byte("hello"))

	client, err := connect(ctx, server, nfs3.Config{Credential: rpc.System("machine", 1000, 1000, nil)})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, block, err := client.Open(ctx, "export/greeting", 0, 100, true)
	if err != nil {
		log.Fatal(err)
	}
	defer block.Release()
	fmt.Printf("%s\n", block.Data)
	// Output: hello
}

func bubble(t *testing.T, cfg nfs3.Config, run func(t *testing.T, s *nfstest.Server, c *nfs3.Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := nfstest.New()
		s.WriteFile("data/file", []byte("contents"))
		c, err := connect(t.Context(), s, cfg)
		if err != nil {
			t.Fatal(err)
		}
		run(t, s, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestServerThatAlwaysDelaysIsGivenUp(t *testing.T) {
	bubble(t, nfs3.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs3.Client) {
		for range 100 {
			s.Next3(procRead, nfstest.Fault{Status: nfsv4.NFS4ERR_DELAY}) // JUKEBOX, under its later name
		}
		start := time.Now()
		_, _, err := c.Open(t.Context(), "data/file", 0, 1, true)
		if took := time.Since(start); !errors.Is(err, remote.ErrBusy) || took < 15*time.Second || took > 25*time.Second {
			t.Errorf("got %v after %v, want ErrBusy after 15 to 25 s", err, took)
		}
	})
}

func TestCallersCancel(t *testing.T) {
	bubble(t, nfs3.Config{Slots: 1}, func(t *testing.T, s *nfstest.Server, c *nfs3.Client) {
		hold := make(chan struct{})
		s.Next3(procRead, nfstest.Fault{Hold: hold})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := c.Open(ctx, "data/file", 0, 1, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open with an end: %v", err)
		}
		if _, err := c.Stat(ctx, "data/file"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the only place is taken, and Stat = %v", err)
		}
		close(hold)
		if _, err := c.Stat(t.Context(), "data/file"); err != nil {
			t.Errorf("Stat after the answer came: %v", err)
		}
	})
}

// A missing file is reported at once. Only an outdated cached handle causes a second request.
func TestMissingFileCostsOneLookup(t *testing.T) {
	bubble(t, nfs3.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs3.Client) {
		if _, err := c.Stat(t.Context(), "data/none"); remote.StatusOf(err) != remote.NoEnt {
			t.Errorf("Stat: %v, want NOENT", err)
		}
		if n := s.Count3(procLookup); n != 2 {
			t.Errorf("%d LOOKUP, want one for the directory and one for the file", n)
		}
	})
}

func TestConnectionsBreakTogether(t *testing.T) {
	bubble(t, nfs3.Config{}, func(t *testing.T, s *nfstest.Server, c *nfs3.Client) {
		for range 4 { // both connections are in use
			if _, err := c.Stat(t.Context(), "data/file"); err != nil {
				t.Fatal(err)
			}
		}
		s.Restart()
		if _, err := c.Stat(t.Context(), "data/file"); err != nil {
			t.Errorf("Stat after a restart: %v", err)
		}
		s.Next3(procRename, nfstest.Fault{Cut: nfstest.CutBefore})
		f, err := c.Create(t.Context(), "data/new")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Rename(t.Context(), f, "data/new", "data/renamed"); err != nil {
			t.Errorf("Rename over a broken connection: %v", err)
		}
	})
}

func TestExports(t *testing.T) {
	s := nfstest.New()
	s.Mkdir("a")
	s.Mkdir("b")
	client := rpc.NewClient(s.Dial, 1, rpc.Options{})
	defer client.Close()
	got, err := nfs3.Exports(t.Context(), client, rpc.Credential{})
	slices.Sort(got)
	if err != nil || !slices.Equal(got, []string{"/a", "/b"}) {
		t.Errorf("Exports = %q, %v; want /a and /b", got, err)
	}
	if _, err := nfs3.Mount(t.Context(), client, rpc.Credential{}, "/none"); remote.StatusOf(err) != remote.NoEnt {
		t.Errorf("Mount of nothing: %v, want NOENT", err)
	}
}
