package sftp

import (
	"context"
	"io/fs"
	"iter"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

var _ backends.Sweeper = (*Backend)(nil)

// List implements backends.Source. Attributes arrive with the names, so a file needs no request of
// its own.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return fileshare.List(ctx, b.tree(), prefix)
}

// Sweep implements backends.Sweeper.
func (b *Backend) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	return fileshare.Sweep(ctx, b.tree(), prefix, over)
}

func (b *Backend) tree() tree { return tree{b} }

// tree is the Backend as a tree of directories.
type tree struct{ b *Backend }

func (tree) CheckKey(op, key string) error             { return fileshare.CheckKey(op, key) }
func (tree) Reserved(name string) bool                 { return fileshare.Reserved(name) }
func (tree) Missing(op, key string, err error) error   { return missing(op, key, err) }
func (tree) Version(i fileshare.Info) backends.Version { return version(i) }

func (tree) Unreachable(name string) string {
	if !utf8.ValidString(name) {
		return "which is not UTF-8"
	}
	return fileshare.Unreachable(name)
}

// Locate returns a place with a path below the root, which realPath returns as well. Nothing but
// link cycles depends on it, so it is not resolved.
func (t tree) Locate(_ context.Context, dir string) (fileshare.Place, error) {
	return fileshare.Place{Path: dir, At: path.Clean(dir)}, nil
}

func (t tree) ReadDir(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) ([]fileshare.Entry, error) {
	s, err := t.b.pool.Get(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := call(ctx, s, func(c *sftp.Client) ([]os.FileInfo, error) { return t.b.readDir(ctx, c, dir.Path) }, nil)
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
func (t tree) Follow(ctx context.Context, key string, e fileshare.Entry) (fileshare.Entry, error) {
	s, err := t.b.pool.Get(ctx)
	if err != nil {
		return e, err
	}
	info, err := t.b.stat(ctx, s, key)
	if err != nil {
		return e, err
	}
	e.Info = attributes(info)
	if info.IsDir() {
		e.At, err = call(ctx, s, func(c *sftp.Client) (string, error) { return t.b.realPath(c, key) }, nil)
	}
	return e, err
}

func (t tree) RemoveOrphan(ctx context.Context, key string, _ fileshare.Entry) error {
	return t.b.removePath(ctx, key)
}

func (t tree) Prune(ctx context.Context, dir fileshare.Place) { t.b.prune(ctx, dir.Path) }

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
