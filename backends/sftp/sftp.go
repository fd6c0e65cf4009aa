package sftp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// Backend is a directory tree of a server as a store. Its methods are safe for concurrent use.
type Backend struct {
	pool       *fileshare.Pool[*session]
	root       string // what keys are relative to: "/", or "" for the home directory
	base       string // key of the directory of the URL, which Delete never removes
	extensions extensions
	clock      clock
	left       backends.Orphans
}

var (
	_ backends.Backend     = (*Backend)(nil)
	_ backends.PartCreator = (*Backend)(nil)
	_ backends.KeyChecker  = (*Backend)(nil)
)

func newBackend(d *dialer) *Backend {
	return &Backend{pool: fileshare.NewPool(d.conns, d.dial), root: d.root, base: d.base}
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

// parallelism is the recommended number of streams.
const parallelism = 8

// Capabilities implements backends.Backend. Without extensions, RENAME neither replaces nor is it
// certain to fail if the target exists.
func (b *Backend) Capabilities() backends.Capabilities {
	c := backends.Capabilities{AtomicReplace: b.extensions.rename, Parallelism: parallelism, PartSize: 8 << 20}
	if b.extensions.link {
		c.ConditionalCreate, c.Guard = true, backends.GuardClaim
	}
	return c
}

// Close implements backends.Backend. It removes the temporary files of failed writes.
func (b *Backend) Close() error {
	b.left.SweepAtClose(b.discard)
	b.pool.Close()
	return nil
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

// describe returns the object for a file.
func describe(key string, info os.FileInfo) backends.Object {
	return attributes(info).Object(tree{}, key)
}

// CheckKey implements backends.KeyChecker.
func (b *Backend) CheckKey(key string) error { return fileshare.CheckKey("create", key) }

// Stat implements backends.Source.
func (b *Backend) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := fileshare.CheckCall(ctx, b.tree(), "stat", key); err != nil {
		return backends.Object{}, err
	}
	s, err := b.pool.Get(ctx)
	if err != nil {
		return backends.Object{}, err
	}
	info, err := b.stat(ctx, s, key)
	if err == nil {
		err = attributes(info).Regular("stat", key)
	}
	if err != nil {
		return backends.Object{}, missing("stat", key, err)
	}
	return describe(key, info), nil
}

// stat returns the attributes of a key. The server follows links.
func (b *Backend) stat(ctx context.Context, s *session, key string) (os.FileInfo, error) {
	return call(ctx, s, func(c *sftp.Client) (os.FileInfo, error) {
		info, err := c.Stat(b.at(key))
		if err == nil {
			b.clock.saw(info.ModTime(), time.Now())
		}
		return info, err
	}, nil)
}

// Delete implements backends.Sink. It removes a link, not its target. It also removes directories
// that become empty, up to but not including that of the URL.
func (b *Backend) Delete(ctx context.Context, key string) error {
	if err := fileshare.CheckCall(ctx, b.tree(), "delete", key); backends.KindOf(err) == backends.NotExist {
		return nil // no object has such a key
	} else if err != nil {
		return err
	}
	s, err := b.pool.Get(ctx)
	if err != nil {
		return err
	}
	err = run(ctx, s, func(c *sftp.Client) error {
		err := c.Remove(b.at(key))
		if err == nil {
			return nil
		}
		if info, serr := c.Stat(b.at(key)); serr == nil && info.IsDir() {
			return nil // not an object
		}
		return err
	})
	if err = missing("delete", key, err); err != nil {
		if backends.KindOf(err) == backends.NotExist {
			return nil
		}
		return err
	}
	b.prune(ctx, path.Dir(key))
	return nil
}

// prune removes dir and its parents as long as they are empty.
func (b *Backend) prune(ctx context.Context, dir string) {
	fileshare.Prune(dir, b.base, func(dir string) error {
		s, err := b.pool.Get(ctx)
		if err != nil {
			return err
		}
		return run(ctx, s, func(c *sftp.Client) error { return c.RemoveDirectory(b.at(dir)) })
	})
}

// removePath removes a file. A missing one is not an error.
func (b *Backend) removePath(ctx context.Context, name string) error {
	s, err := b.pool.Get(ctx)
	if err != nil {
		return err
	}
	err = run(ctx, s, func(c *sftp.Client) error { return c.Remove(b.at(name)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
