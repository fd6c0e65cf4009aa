package nfs3

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv3"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

const (
	program = 100003
	version = 3
)

// procedure of the protocol.
type procedure uint32

const (
	getattr     procedure = 1
	lookup      procedure = 3
	readlink    procedure = 5
	read        procedure = 6
	write       procedure = 7
	create      procedure = 8
	mkdir       procedure = 9
	remove      procedure = 12
	rmdir       procedure = 13
	rename      procedure = 14
	link        procedure = 15
	readdir     procedure = 16
	readdirplus procedure = 17
	fsinfo      procedure = 19
	commit      procedure = 21
)

var names = map[procedure]string{
	getattr: "GETATTR", lookup: "LOOKUP", readlink: "READLINK", read: "READ", write: "WRITE", create: "CREATE", mkdir: "MKDIR",
	remove: "REMOVE", rmdir: "RMDIR", rename: "RENAME", link: "LINK", readdir: "READDIR", readdirplus: "READDIRPLUS", fsinfo: "FSINFO", commit: "COMMIT",
}

// Config says how a server is spoken to.
type Config struct {
	RPC        *rpc.Client // of the NFS service; owned by the Client
	Credential rpc.Credential
	Root       Handle // of the mounted directory
	Slots      int    // requests at once, 0: 16
	BlockSize  int    // bytes of a read or write, 0: 512 KiB; the server may take fewer
}

// Handle of a file, opaque to clients.
type Handle string

const maxHandle = 64

// Client is a mounted directory. It is a remote.Tree.
type Client struct {
	cfg         Config
	slots       chan struct{}
	read, write int
	bare        atomic.Bool // the server does not have READDIRPLUS

	mu          sync.Mutex // guards all below
	directories map[string]known
}

// known is a directory's handle, and until when it is believed.
type known struct {
	handle Handle
	until  time.Time
}

const believe = 30 * time.Second

var _ remote.Tree = (*Client)(nil)

// Dial asks the server which sizes it likes.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.Slots == 0 {
		cfg.Slots = 16
	}
	if cfg.BlockSize == 0 {
		cfg.BlockSize = 512 << 10
	}
	c := &Client{cfg: cfg, slots: make(chan struct{}, cfg.Slots), directories: make(map[string]known)}
	r, err := c.call(ctx, fsinfo, 0, func(e *rpc.Encoder) { e.String(string(cfg.Root)) })
	if err != nil {
		return nil, err
	}
	defer r.Release()
	var info nfsv3.Fsinfo3resok
	r.Get(&info)
	if r.Err() != nil {
		return nil, remote.Malformed(r.Err())
	}
	c.read, c.write = cfg.BlockSize, cfg.BlockSize
	if n := int(info.Rtmax); n > 0 {
		c.read = min(c.read, n)
	}
	if n := int(info.Wtmax); n > 0 {
		c.write = min(c.write, n)
	}
	return c, nil
}

// Sizes implements remote.Tree.
func (c *Client) Sizes() (read, write int) { return c.read, c.write }

// Close ends the connections.
func (c *Client) Close() error { return c.cfg.RPC.Close() }

// call runs a procedure until the server has carried it out or refused it. The reply
// stands behind the status.
func (c *Client) call(ctx context.Context, p procedure, hint int, args func(*rpc.Encoder)) (*rpc.Reply, error) {
	msg := rpc.NewCall(c.cfg.Credential, program, version, uint32(p), hint)
	args(msg)
	var wait remote.Wait
	for {
		r, err := c.send(ctx, msg)
		if err != nil {
			return nil, err
		}
		status := remote.Status(r.Uint32())
		if err := remote.Malformed(r.Err()); err != nil {
			r.Release()
			return nil, err
		}
		if status == remote.OK {
			return r, nil
		}
		r.Release()
		if status != remote.Delay {
			return nil, &remote.Error{Status: status, Op: names[p]}
		}
		if err := wait.Sleep(ctx); err != nil {
			return nil, err
		}
		msg.Renew()
	}
}

// send sends a message, and once more on a new connection if the first broke. When the
// caller gives up, the call keeps its place among those at once until its answer came.
func (c *Client) send(ctx context.Context, msg *rpc.Encoder) (*rpc.Reply, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, rpc.Ended(ctx)
	}
	free := func() { <-c.slots }
	r, call, err := c.cfg.RPC.Send(ctx, c.cfg.RPC.Next(), msg)
	if err == nil || call == nil {
		free()
		return r, err
	}
	go func() {
		defer free()
		if r, err := call.Wait(context.Background()); err == nil { // a connection does not stay silent for ever
			r.Release()
		}
	}()
	return nil, err
}

// attr reads a fattr3. Its time of change is its counter of changes.
func attr(r *rpc.Decoder) remote.Attr {
	a := remote.Attr{Type: remote.Type(r.Uint32())}
	r.Fixed(4 * 4)
	a.Size = int64(r.Uint64() & (1<<63 - 1))
	r.Fixed(8 + 8 + 8)
	a.FileID = r.Uint64()
	r.Fixed(8)
	a.ModTime = time.Unix(int64(r.Uint32()), int64(r.Uint32()))
	a.Change = uint64(r.Uint32())*1e9 + uint64(r.Uint32())
	return a
}

// maybeAttr reads a post_op_attr.
func maybeAttr(r *rpc.Decoder) (remote.Attr, bool) {
	if r.Uint32() == 0 {
		return remote.Attr{}, false
	}
	return attr(r), true
}

// maybeHandle reads a post_op_fh3.
func maybeHandle(r *rpc.Decoder) Handle {
	if r.Uint32() == 0 {
		return ""
	}
	return Handle(r.Opaque(maxHandle))
}

// skipChange reads a wcc_data, which does not matter here.
func skipChange(r *rpc.Decoder) {
	if r.Uint32() != 0 {
		r.Fixed(8 + 8 + 8)
	}
	maybeAttr(r)
}

// split cuts the last name off a path.
func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
