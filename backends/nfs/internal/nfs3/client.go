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

// procedure is a procedure number of the protocol.
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

// Config configures a Client.
type Config struct {
	RPC        *rpc.Client // connections to the NFS service; owned by the Client
	Credential rpc.Credential
	Root       Handle // of the mounted directory
	Slots      int    // concurrent requests, 0: 16
	BlockSize  int    // bytes of a read or write, 0: 512 KiB; the server may limit it
}

// Handle is a file handle, opaque to clients.
type Handle string

const maxHandle = 64

// Client is a mounted directory. It implements remote.Tree.
type Client struct {
	cfg         Config
	slots       chan struct{}
	read, write int
	bare        atomic.Bool // the server lacks READDIRPLUS
	data        rpc.Place   // of the bytes in responses to READ

	mu          sync.Mutex // guards the fields below
	directories map[string]known
}

// known is a cached handle of a directory.
type known struct {
	handle Handle
	until  time.Time
}

const believe = 30 * time.Second

var _ remote.Tree = (*Client)(nil)

// Dial returns a Client after requesting the preferred sizes of the server.
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

// Close closes the connections.
func (c *Client) Close() error { return c.cfg.RPC.Close() }

// call runs a procedure until the server returns its outcome. The reply is positioned after the
// status.
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

// send sends a message, and once more on a new connection if the first breaks. If the caller gives
// up, the call still occupies its slot until the response arrives.
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
		if r, err := call.Wait(context.Background()); err == nil { // a silent connection ends by itself
			r.Release()
		}
	}()
	return nil, err
}

// attr decodes a fattr3. Its ctime serves as the change counter.
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

// maybeAttr decodes a post_op_attr.
func maybeAttr(r *rpc.Decoder) (remote.Attr, bool) {
	if r.Uint32() == 0 {
		return remote.Attr{}, false
	}
	return attr(r), true
}

// maybeHandle decodes a post_op_fh3.
func maybeHandle(r *rpc.Decoder) Handle {
	if r.Uint32() == 0 {
		return ""
	}
	return Handle(r.Opaque(maxHandle))
}

// change decodes a wcc_data and returns the attributes after the change, if the server knows them.
func change(r *rpc.Decoder) (remote.Attr, bool) {
	if r.Uint32() != 0 {
		r.Fixed(8 + 8 + 8)
	}
	return maybeAttr(r)
}

// split returns the directory and the last name of a path.
func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
