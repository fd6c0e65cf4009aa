package nfs

import (
	"context"
	"io/fs"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// protocol implements fileshare.Protocol. The place of a directory is its path without links.
type protocol struct{ s *share }

func (protocol) CheckKey(op, key string) error             { return fileshare.CheckKey(op, key) }
func (protocol) Reserved(name string) bool                 { return fileshare.Reserved(name) }
func (protocol) Unreachable(name string) string            { return fileshare.Unreachable(name) }
func (protocol) Version(i fileshare.Info) backends.Version { return version(i) }
func (protocol) Missing(op, key string, err error) error   { return missing(op, key, err) }

func (p protocol) Locate(ctx context.Context, dir string) (fileshare.Place, error) {
	_, at, err := p.s.links.stat(ctx, dir)
	return fileshare.Place{Path: dir, At: at}, err
}

// ReadDir gets the attributes with the names, so a file needs no request of its own, unless it was
// removed or replaced in between.
func (p protocol) ReadDir(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) (entries []fileshare.Entry, err error) {
	var gone []string
	for range attempts {
		entries, gone = nil, nil
		err = p.s.tree.ReadDir(ctx, dir.At, func(e remote.Entry) error {
			switch {
			case e.Name == "." || e.Name == ".." || !wanted(e.Name):
			case e.Gone:
				gone = append(gone, e.Name)
			default:
				entries = append(entries, fileshare.Entry{Name: e.Name, Info: attributes(e.Attr), At: path.Join(dir.At, e.Name)})
			}
			return nil
		})
		if s := remote.StatusOf(err); stale(err) || s == remote.BadCookie || s == remote.NotSame {
			continue // the directory was replaced, or the cookie became invalid
		}
		break
	}
	if err != nil {
		return nil, err
	}
	for _, name := range gone {
		at := path.Join(dir.At, name)
		a, err := p.s.links.lookup(ctx, at)
		switch {
		case err == nil:
			entries = append(entries, fileshare.Entry{Name: name, Info: attributes(a), At: at})
		case remote.StatusOf(err) == remote.NoEnt:
			backends.Skip(ctx, backends.Skipped{Key: path.Join(dir.Path, name), What: "a file", Vanished: true})
		default:
			return nil, err
		}
	}
	return entries, nil
}

func (p protocol) Follow(ctx context.Context, _ string, e fileshare.Entry) (fileshare.Entry, error) {
	a, at, err := p.s.links.stat(ctx, e.At)
	e.Info, e.At = attributes(a), at
	return e, err
}

func (p protocol) RemoveOrphan(ctx context.Context, _ string, e fileshare.Entry) error {
	err := p.s.tree.Remove(ctx, e.At, remote.Regular)
	if remote.StatusOf(err) == remote.NoEnt {
		return nil
	}
	return err
}

// Prune removes dir and its parents as long as they are empty, but not that of the URL.
func (p protocol) Prune(ctx context.Context, dir fileshare.Place) {
	fileshare.Prune(p.s.links.cached(dir.At), strings.TrimSuffix(p.s.base, "/"), func(dir string) error {
		return p.s.tree.Remove(ctx, dir, remote.Directory)
	})
}

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
