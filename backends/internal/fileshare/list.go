package fileshare

import (
	"context"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// List implements backends.Source. It follows links, except back to a parent directory. It keeps in
// memory only the entries of the directories between the root and its position.
func List(ctx context.Context, t Tree, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		dir, ok := directoryOf(t, "list", prefix)
		if !ok {
			return
		}
		if err := Ended(ctx, "list", prefix); err != nil {
			yield(backends.Object{}, err)
			return
		}
		l := &lister{ctx: ctx, tree: t, prefix: prefix, yield: yield}
		place, err := t.Locate(ctx, dir)
		if err == nil {
			l.dir(place)
		} else if missing, err := isMissing(t, "list", dir, err); !missing {
			yield(backends.Object{}, err)
		}
	}
}

type lister struct {
	ctx    context.Context // lives for one listing
	tree   Tree
	prefix string
	yield  func(backends.Object, error) bool
	within []string // Place.At of the open directories, to detect link cycles
}

// dir yields the objects below a directory. It returns false to stop.
func (l *lister) dir(dir Place) bool {
	if slices.Contains(l.within, dir.At) {
		backends.Skip(l.ctx, backends.Skipped{Key: dir.Path + "/", What: "a link to a directory above it"})
		return true
	}
	l.within = append(l.within, dir.At)
	defer func() { l.within = l.within[:len(l.within)-1] }()
	entries, err := l.entries(dir)
	if err != nil {
		missing, err := isMissing(l.tree, "list", dir.Path, err)
		if missing {
			if len(l.within) > 1 { // the top directory may never have existed
				backends.Skip(l.ctx, backends.Skipped{Key: dir.Path + "/", What: "a directory", Vanished: true})
			}
			return true
		}
		l.yield(backends.Object{}, err)
		return false
	}
	if len(entries) == 0 && len(l.within) > 1 {
		backends.Skip(l.ctx, backends.Skipped{Key: dir.Path + "/", What: "a directory without files"})
	}
	for i, e := range entries {
		if err := Ended(l.ctx, "list", l.prefix); err != nil {
			l.yield(backends.Object{}, err)
			return false
		}
		entries[i] = Entry{} // free its memory
		name, isDir := strings.CutSuffix(e.Name, "/")
		key := path.Join(dir.Path, name)
		if isDir && !l.dir(Place{key, e.At}) || !isDir && !l.yield(e.Object(l.tree, key), nil) {
			return false
		}
	}
	return true
}

// entries returns the entries of dir that may lead to keys with the prefix, in key order. A
// directory gets a trailing slash and sorts with it: "a-b" sorts before the keys in "a", and these
// before "a0".
func (l *lister) entries(dir Place) ([]Entry, error) {
	entries, err := l.tree.ReadDir(l.ctx, dir, func(name string) bool {
		key := path.Join(dir.Path, name)
		return !l.tree.Reserved(name) && (strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key+"/"))
	})
	if err != nil {
		return nil, err
	}
	kept := entries[:0]
	for _, e := range entries {
		key := path.Join(dir.Path, e.Name)
		if why := l.tree.Unreachable(e.Name); why != "" {
			return nil, backends.Errorf(backends.Unsupported, "list", dir.Path, "the server lists the invalid name %q, %s: rename it on the server", e.Name, why)
		}
		e, skipped, err := l.follow(key, e)
		if err != nil {
			return nil, err
		}
		if skipped != "" {
			backends.Skip(l.ctx, backends.Skipped{Key: key, What: skipped})
			continue
		}
		kept = append(kept, e)
	}
	slices.SortFunc(kept, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	// A directory that changes during the listing may return a name twice.
	return slices.CompactFunc(kept, func(a, b Entry) bool { return a.Name == b.Name }), nil
}

// follow resolves a link and marks a directory. It returns a description of an entry that is
// neither a directory nor a file.
func (l *lister) follow(key string, e Entry) (_ Entry, skipped string, err error) {
	if e.Type&fs.ModeSymlink != 0 {
		target, err := l.tree.Follow(l.ctx, key, e)
		if err != nil {
			missing, err := isMissing(l.tree, "stat", key, err)
			if missing {
				return e, "a link that leads nowhere", nil
			}
			return e, "", err
		}
		e = target
	}
	switch {
	case e.Type.IsDir():
		e.Name += "/"
	case e.Type.IsRegular():
	case e.Type&fs.ModeNamedPipe != 0:
		return e, "a FIFO", nil
	default:
		return e, "a device or a socket", nil
	}
	return e, "", nil
}
