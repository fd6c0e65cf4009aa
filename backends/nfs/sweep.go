package nfs

import (
	"context"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

var _ backends.Sweeper = (*share)(nil)

// Sweep implements backends.Sweeper. It removes temporary files, and directories that are empty
// afterwards or that a killed writer left empty. It does not follow links below the prefix.
func (s *share) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	dir := strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
	if dir != "" && checkKey("sweep", dir) != nil {
		return nil // no key has this prefix
	}
	_, at, err := s.links.stat(ctx, dir)
	if err == nil {
		_, err = s.sweepDir(ctx, dir, at, prefix, over)
	}
	if err = missing("sweep", prefix, err); backends.KindOf(err) == backends.NotExist {
		return nil
	}
	return err
}

// sweepDir sweeps dir, whose path in the tree is at, and reports whether it was empty.
func (s *share) sweepDir(ctx context.Context, dir, at, prefix string, over func(backends.Orphan) bool) (empty bool, err error) {
	if err := ended(ctx, "sweep", dir); err != nil {
		return false, err
	}
	var directories, files []remote.Entry
	empty = true
	err = s.tree.ReadDir(ctx, at, func(e remote.Entry) error {
		empty = false
		key := path.Join(dir, e.Name)
		switch {
		case e.Name == "" || strings.Contains(e.Name, "/"):
		case e.Attr.Type == remote.Directory && !hidden(e.Name) && (strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key+"/")):
			directories = append(directories, e)
		case e.Attr.Type == remote.Regular && strings.HasPrefix(e.Name, Temporary) && strings.HasPrefix(key, prefix):
			files = append(files, e)
		}
		return nil
	})
	if err != nil {
		if remote.StatusOf(err) == remote.NoEnt {
			err = nil // already removed
		}
		return false, err
	}
	for _, e := range directories {
		key, place := path.Join(dir, e.Name), path.Join(at, e.Name)
		empty, err := s.sweepDir(ctx, key, place, prefix, over)
		if err != nil {
			return false, err
		}
		if empty && strings.HasPrefix(key, prefix) && over(backends.Orphan{Key: path.Join(key, Temporary), Directory: true, Touched: e.Attr.ModTime}) {
			s.prune(ctx, place)
		}
	}
	for _, e := range files {
		if !over(backends.Orphan{Key: path.Join(dir, e.Name), Size: e.Attr.Size, Touched: e.Attr.ModTime, Marked: true}) {
			continue
		}
		err := s.tree.Remove(ctx, path.Join(at, e.Name), remote.Regular)
		if err != nil && remote.StatusOf(err) != remote.NoEnt {
			return false, err
		}
		s.prune(ctx, at)
	}
	return empty, nil
}
