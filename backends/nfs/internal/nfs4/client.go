package nfs4

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// Config configures a Client.
type Config struct {
	RPC        *rpc.Client // owned by the Client
	Credential rpc.Credential
	Slots      int          // concurrent requests, 0: 16; the server may grant fewer
	BlockSize  int          // bytes of a read or write, 0: 512 KiB; the server may grant fewer
	Log        *slog.Logger // nil: no logging
}

// Client is a client of one server with one session. It implements remote.Tree.
type Client struct {
	cfg     Config
	owner   string
	opens   atomic.Uint64 // counts open owners: each OPEN has its own
	lease   atomic.Int64
	flags   atomic.Uint32 // last status bits of SEQUENCE
	sizes   atomic.Uint64 // granted by the session: read<<32 | write
	data    rpc.Place     // of the bytes in responses to READ
	first   rpc.Place     // the same for a READ that follows OPEN
	stop    context.CancelFunc
	stopped chan struct{}

	turn      chan struct{} // guards the fields below; a channel, so that waiting respects contexts
	sess      *session
	verifier  nfsv4.Verifier4
	id        uint64 // client id; 0: none
	seq       uint32 // of the next CREATE_SESSION
	epoch     uint64 // counts client ids
	reclaimed uint64 // epoch of the last RECLAIM_COMPLETE
}

var _ remote.Tree = (*Client)(nil)

// Dial registers a client with the server and opens a session.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.Slots == 0 {
		cfg.Slots = 16
	}
	if cfg.BlockSize == 0 {
		cfg.BlockSize = 512 << 10
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		cfg: cfg, owner: "stager " + rand.Text(), verifier: newVerifier(),
		turn: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	c.lease.Store(int64(time.Minute))
	s, err := c.session(ctx, nil)
	if err != nil {
		return nil, err
	}
	c.sizes.Store(uint64(min(s.maxRead, cfg.BlockSize))<<32 | uint64(min(s.maxWrite, cfg.BlockSize)))
	alive, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		defer close(c.stopped)
		c.keepAlive(alive)
	}()
	return c, nil
}

// Sizes implements remote.Tree.
func (c *Client) Sizes() (read, write int) {
	both := c.sizes.Load()
	return int(both >> 32), int(both & (1<<32 - 1))
}

// Close ends the session and closes the connections.
func (c *Client) Close() error {
	c.stop()
	<-c.stopped
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		c.farewell(ctx)
		<-c.turn
	case <-ctx.Done():
	}
	return c.cfg.RPC.Close()
}
