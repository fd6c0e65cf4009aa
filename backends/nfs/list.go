package nfs

import (
	"context"
	"io/fs"
	"iter"
	"path"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

var _ backends.Sweeper = (*share)(nil)

// List implements backends.Source. Attributes arrive with the names, so a file needs no request of
// its own.
func (s *share) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return fileshare.List(ctx, tree{s}, prefix)
}

// Sweep implements backends.Sweeper.
func (s *share) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	return fileshare.Sweep(ctx, tree{s}, prefix, over)
}

// tree is the share as a tree of directories. The place of a directory is its path without links.
type tree struct{ s *share }

func (tree) CheckKey(op, key string) error             { return fileshare.CheckKey(op, key) }
func (tree) Reserved(name string) bool                 { return fileshare.Reserved(name) }
func (tree) Unreachable(name string) string            { return fileshare.Unreachable(name) }
func (tree) Version(i fileshare.Info) backends.Version { return version(i) }
func (tree) Missing(op, key string, err error) error   { return missing(op, key, err) }

func (t tree) Locate(ctx context.Context, dir string) (fileshare.Place, error) {
	_, at, err := t.s.links.stat(ctx, dir)
	return fileshare.Place{Path: dir, At: at}, err
}

func (t tree) ReadDir(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) (entries []fileshare.Entry, err error) {
	for range 3 {
		entries = nil
		err = t.s.tree.ReadDir(ctx, dir.At, func(e remote.Entry) error {
			if e.Name != "." && e.Name != ".." && wanted(e.Name) {
				entries = append(entries, fileshare.Entry{Name: e.Name, Info: attributes(e.Attr), At: path.Join(dir.At, e.Name)})
			}
			return nil
		})
		switch remote.StatusOf(err) {
		case remote.Stale, remote.FHExpired, remote.BadHandle, remote.BadCookie, remote.NotSame:
			continue // the directory was replaced, or the cookie became invalid
		}
		break
	}
	return entries, err
}

func (t tree) Follow(ctx context.Context, _ string, e fileshare.Entry) (fileshare.Entry, error) {
	a, at, err := t.s.links.stat(ctx, e.At)
	e.Info, e.At = attributes(a), at
	return e, err
}

func (t tree) RemoveOrphan(ctx context.Context, _ string, e fileshare.Entry) error {
	err := t.s.tree.Remove(ctx, e.At, remote.Regular)
	if remote.StatusOf(err) == remote.NoEnt {
		return nil
	}
	return err
}

func (t tree) Prune(ctx context.Context, dir fileshare.Place) { t.s.prune(ctx, dir.At) }

// attributes returns the attributes of a file.
func attributes(a remote.Attr) fileshare.Info {
	i := fileshare.Info{Size: a.Size, ModTime: a.ModTime, ID: a.FileID, Change: a.Change}
	switch a.Type {
	case remote.Regular:
	case remote.Directory:
		i.Type = fs.ModeDir
	case remote.Symlink:
		i.Type = fs.ModeSymlink
	case remote.FIFO:
		i.Type = fs.ModeNamedPipe
	default:
		i.Type = fs.ModeIrregular
	}
	return i
}
