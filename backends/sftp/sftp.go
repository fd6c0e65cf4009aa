package sftp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// Backend is a directory tree of a server as a store. Its methods are safe for concurrent use.
type Backend struct {
	*fileshare.Share
	pool       *fileshare.Pool[*session]
	root       string // what keys are relative to: "/", or "" for the home directory
	base       string // key of the directory of the URL, which Delete never removes
	extensions extensions
	clock      clock
}

var _ backends.Backend = (*Backend)(nil)

func newBackend(d *dialer) *Backend {
	b := &Backend{pool: fileshare.NewPool(d.conns, d.dial), root: d.root, base: d.base}
	b.Share = fileshare.New(protocol{b}, fileshare.Config{Open: protocol{b}.Open, ChunkSize: chunkSize, Window: window, PartSize: partSize, SpreadParts: true})
	return b
}

// extensions are the operations that a server offers beyond version 3 of the protocol.
type extensions struct {
	rename bool // posix-rename: replaces the target atomically
	link   bool // hardlink: fails if the target exists
	fsync  bool // fsync: writes a file to the disk
	space  bool // statvfs: reports free space
}

func extensionsOf(c *sftp.Client) extensions {
	has := func(name string) bool { _, ok := c.HasExtension(name + "@openssh.com"); return ok }
	return extensions{rename: has("posix-rename"), link: has("hardlink"), fsync: has("fsync"), space: has("statvfs")}
}

// weaker returns what the server cannot promise.
func (e extensions) weaker() string {
	var all []string
	for _, lack := range []struct {
		has  bool
		what string
	}{
		{e.fsync, "a crash of the server may lose new files"},
		{e.rename, "readers may find no file while it is replaced"},
		{e.link, "writers that race for a key may replace each other's file"},
	} {
		if !lack.has {
			all = append(all, lack.what)
		}
	}
	return strings.Join(all, "; ")
}

// parallelism is the recommended number of streams, and partSize of bytes in one.
const parallelism, partSize = 8, 8 << 20

// Capabilities implements backends.Backend. Without extensions, RENAME neither replaces nor is it
// certain to fail if the target exists.
func (b *Backend) Capabilities() backends.Capabilities {
	c := backends.Capabilities{AtomicReplace: b.extensions.rename, Parallelism: parallelism, PartSize: partSize}
	if b.extensions.link {
		c.ConditionalCreate, c.Guard = true, backends.GuardClaim
	}
	return c
}

// at returns the path of a key on the server.
func (b *Backend) at(key string) string {
	if name := b.root + key; name != "" {
		return name
	}
	return "."
}

// attributes returns the attributes of a file.
func attributes(info os.FileInfo) fileshare.Info {
	return fileshare.Info{Type: info.Mode().Type(), Size: info.Size(), ModTime: info.ModTime()}
}

// version returns the version of a file. The protocol reports modification times in seconds and no
// file ids, so it is weaker than that of other file systems; see the package comment.
func version(i fileshare.Info) backends.Version {
	return backends.Version(fmt.Sprintf("%x-%x", i.Size, i.ModTime.Unix()))
}

// run runs a call of the library in any session.
func (p protocol) run(ctx context.Context, f func(*sftp.Client) error) error {
	s, err := p.b.pool.Get(ctx)
	if err != nil {
		return err
	}
	return run(ctx, s, f)
}

func (protocol) Classify(op, key string, err error) error { return classify(op, key, err) }
func (protocol) Same(a, b backends.Version) bool          { return a == b }

func (p protocol) Close() error {
	p.b.pool.Close()
	return nil
}

// Stat returns the attributes of a name. The server follows links.
func (p protocol) Stat(ctx context.Context, name string) (fileshare.Info, error) {
	s, err := p.b.pool.Get(ctx)
	if err != nil {
		return fileshare.Info{}, err
	}
	return p.b.stat(ctx, s, name)
}

func (b *Backend) stat(ctx context.Context, s *session, name string) (fileshare.Info, error) {
	info, err := call(ctx, s, func(c *sftp.Client) (os.FileInfo, error) { return c.Stat(b.at(name)) }, nil)
	if err != nil {
		return fileshare.Info{}, err
	}
	b.clock.saw(info.ModTime(), time.Now())
	return attributes(info), nil
}

func (p protocol) Mkdir(ctx context.Context, name string) error {
	return p.run(ctx, func(c *sftp.Client) error { return c.Mkdir(p.b.at(name)) })
}

// Delete removes a link, not its target.
func (p protocol) Delete(ctx context.Context, key string) error {
	return p.run(ctx, func(c *sftp.Client) error {
		err := c.Remove(p.b.at(key))
		if err == nil {
			return nil
		}
		if info, serr := c.Stat(p.b.at(key)); serr == nil && info.IsDir() {
			return nil // not an object
		}
		return err
	})
}

func (p protocol) Remove(ctx context.Context, name string) error {
	err := p.run(ctx, func(c *sftp.Client) error { return c.Remove(p.b.at(name)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
