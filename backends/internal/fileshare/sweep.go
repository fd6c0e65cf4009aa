package fileshare

import (
	"context"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Sweep implements backends.Sweeper. It removes temporary files and claims, and directories that
// are empty afterwards or that a killed writer left empty. It does not follow links below the
// prefix.
func Sweep(ctx context.Context, t Tree, prefix string, over func(backends.Orphan) bool) error {
	dir, ok := directoryOf(t, "sweep", prefix)
	if !ok {
		return nil // no key has this prefix
	}
	place, err := t.Locate(ctx, dir)
	if err == nil {
		s := &sweeper{ctx, t, prefix, over}
		_, err = s.dir(place)
	}
	missing, err := isMissing(t, "sweep", prefix, err)
	if missing {
		return nil
	}
	return err
}

type sweeper struct {
	ctx    context.Context // lives for one sweep
	tree   Tree
	prefix string
	over   func(backends.Orphan) bool
}

// dir reports whether the directory was empty.
func (s *sweeper) dir(dir Place) (empty bool, err error) {
	if err := Ended(s.ctx, "sweep", dir.Path); err != nil {
		return false, err
	}
	empty = true
	entries, err := s.tree.ReadDir(s.ctx, dir, func(name string) bool {
		empty = false
		key := path.Join(dir.Path, name)
		return strings.HasPrefix(name, Temporary) && strings.HasPrefix(key, s.prefix) ||
			!s.tree.Reserved(name) && (strings.HasPrefix(key, s.prefix) || strings.HasPrefix(s.prefix, key+"/"))
	})
	if err != nil {
		missing, err := isMissing(s.tree, "sweep", dir.Path, err)
		if missing {
			err = nil // already removed
		}
		return false, err
	}
	removed := false
	for _, e := range entries {
		key := path.Join(dir.Path, e.Name)
		switch {
		case Unreachable(e.Name) != "":
		case e.Type.IsDir() && !s.tree.Reserved(e.Name):
			if err := s.subdirectory(Place{key, e.At}, e.Info); err != nil {
				return false, err
			}
		case strings.HasPrefix(e.Name, Temporary) && (e.Type.IsRegular() || e.Claims):
			if !s.over(backends.Orphan{Key: key, Size: e.Size, Touched: e.ModTime, Marked: true}) {
				continue
			}
			if err := s.tree.RemoveOrphan(s.ctx, key, e); err != nil {
				return false, err
			}
			removed = true
		}
	}
	if removed {
		s.tree.Prune(s.ctx, dir)
	}
	return empty, nil
}

// subdirectory sweeps a directory and removes it if it was empty.
func (s *sweeper) subdirectory(dir Place, i Info) error {
	empty, err := s.dir(dir)
	if err != nil {
		return err
	}
	orphan := backends.Orphan{Key: path.Join(dir.Path, Temporary), Directory: true, Touched: i.ModTime}
	if empty && strings.HasPrefix(dir.Path, s.prefix) && s.over(orphan) {
		s.tree.Prune(s.ctx, dir)
	}
	return nil
}
