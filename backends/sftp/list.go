package sftp

import (
	"context"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// protocol makes the calls of a Backend for fileshare.
type protocol struct{ b *Backend }

var _ fileshare.Protocol = protocol{}

func (protocol) CheckKey(op, key string) error             { return fileshare.CheckKey(op, key) }
func (protocol) Reserved(name string) bool                 { return fileshare.Reserved(name) }
func (protocol) Missing(op, key string, err error) error   { return missing(op, key, err) }
func (protocol) Version(i fileshare.Info) backends.Version { return version(i) }

func (protocol) Unreachable(name string) string {
	if !utf8.ValidString(name) {
		return "which is not UTF-8"
	}
	return fileshare.Unreachable(name)
}

// Locate returns a place with a path below the root, which realPath returns as well. Nothing but
// link cycles depends on it, so it is not resolved.
func (p protocol) Locate(_ context.Context, dir string) (fileshare.Place, error) {
	return fileshare.Place{Path: dir, At: path.Clean(dir)}, nil
}

func (p protocol) ReadDir(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) ([]fileshare.Entry, error) {
	s, err := p.b.pool.Get(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := call(ctx, s, func(c *sftp.Client) ([]os.FileInfo, error) { return p.b.readDir(ctx, c, dir.Path) }, nil)
	if err != nil {
		return nil, err
	}
	var entries []fileshare.Entry
	for _, info := range infos {
		if name := info.Name(); wanted(name) {
			entries = append(entries, fileshare.Entry{Name: name, Info: attributes(info), At: path.Join(dir.At, name)})
		}
	}
	return entries, nil
}

// Follow returns the target of a link, and of a directory the path without links, relative to the
// root of the listing if it is below the directory of the URL.
func (p protocol) Follow(ctx context.Context, key string, e fileshare.Entry) (fileshare.Entry, error) {
	s, err := p.b.pool.Get(ctx)
	if err != nil {
		return e, err
	}
	info, err := p.b.stat(ctx, s, key)
	if err != nil {
		return e, err
	}
	e.Info = info
	if e.Type.IsDir() {
		e.At, err = call(ctx, s, func(c *sftp.Client) (string, error) { return p.b.realPath(c, key) }, nil)
	}
	return e, err
}

func (p protocol) RemoveOrphan(ctx context.Context, key string, _ fileshare.Entry) error {
	return p.Remove(ctx, key)
}

// Prune does not remove the directory of the URL.
func (p protocol) Prune(ctx context.Context, dir fileshare.Place) {
	fileshare.Prune(dir.Path, p.b.base, func(dir string) error {
		return p.run(ctx, func(c *sftp.Client) error { return c.RemoveDirectory(p.b.at(dir)) })
	})
}

func (b *Backend) realPath(c *sftp.Client, key string) (string, error) {
	is, err := c.RealPath(b.at(key))
	if err != nil {
		return "", err
	}
	top, err := c.RealPath(b.at(b.base))
	if err != nil {
		return "", err
	}
	if below, ok := strings.CutPrefix(is+"/", strings.TrimSuffix(top, "/")+"/"); ok {
		return path.Clean(path.Join(b.base, below)), nil
	}
	return is, nil
}

// readDir lists a directory.
func (b *Backend) readDir(ctx context.Context, c *sftp.Client, dir string) ([]os.FileInfo, error) {
	infos, err := c.ReadDirContext(ctx, b.at(dir))
	if status(err) == statusFailure {
		if info, serr := c.Stat(b.at(dir)); serr == nil && !info.IsDir() {
			return nil, fs.ErrNotExist // some servers return a failure for listing a file
		}
	}
	for _, info := range infos {
		if info.Mode().IsRegular() {
			b.clock.saw(info.ModTime(), time.Now())
		}
	}
	return infos, err
}
