package nfs

import (
	"cmp"
	"context"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// List implements backends.Source. Attributes come with the names, so that a file
// costs no request of its own.
func (s *share) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		// Everything below the last slash of the prefix is in one directory.
		dir := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
			if checkKey("list", dir) != nil {
				return // no key begins so
			}
		}
		l := &lister{ctx: ctx, links: s.links, prefix: prefix, yield: yield}
		if _, at, err := s.links.stat(ctx, dir); err == nil {
			l.dir(dir, at)
		} else if err = missing("list", dir, err); backends.KindOf(err) != backends.NotExist {
			yield(backends.Object{}, err)
		}
	}
}

type lister struct {
	ctx    context.Context // it lives as long as one listing
	links  *links
	prefix string
	yield  func(backends.Object, error) bool
	within []string // the directories that it is in, against links in a circle
}

// entry is a name of a directory, and where that leads.
type entry struct {
	remote.Entry
	at string
}

// dir yields what lies below dir, which is at a path of the tree, and tells whether
// to go on.
func (l *lister) dir(dir, at string) bool {
	if slices.Contains(l.within, at) {
		return true
	}
	l.within = append(l.within, at)
	defer func() { l.within = l.within[:len(l.within)-1] }()
	entries, err := l.entries(dir, at)
	if err != nil {
		err = missing("list", dir, err)
		if backends.KindOf(err) == backends.NotExist {
			if len(l.within) > 1 { // else it may never have been there
				backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory", Vanished: true})
			}
			return true
		}
		l.yield(backends.Object{}, err)
		return false
	}
	for i, e := range entries {
		if err := ended(l.ctx, "list", l.prefix); err != nil {
			l.yield(backends.Object{}, err)
			return false
		}
		entries[i] = entry{} // its memory may go
		name, isDir := strings.CutSuffix(e.Name, "/")
		key := path.Join(dir, name)
		if isDir && !l.dir(key, e.at) || !isDir && !l.yield(describe(key, e.Attr), nil) {
			return false
		}
	}
	return true
}

// entries are those in dir that may lead to keys with the prefix, in the order of the
// keys: a directory counts with the slash behind it, so that "a-b" stands before what is
// in "a", and that before "a0".
func (l *lister) entries(dir, at string) (entries []entry, err error) {
	for range 3 {
		entries, err = l.read(dir, at)
		switch remote.StatusOf(err) {
		case remote.Stale, remote.FHExpired, remote.BadHandle, remote.BadCookie, remote.NotSame:
			continue // it was replaced, or changed so much that the server lost its place
		}
		break
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
	// A directory that changes while it is read may show a name twice.
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.Name == b.Name })
	return entries, err
}

func (l *lister) read(dir, at string) (entries []entry, err error) {
	err = l.links.tree.ReadDir(l.ctx, at, func(e remote.Entry) error {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return backends.Errorf(backends.Unsupported, "list", dir, "the server has a file of the name %q, which no path can lead to", e.Name)
		}
		key := path.Join(dir, e.Name)
		wanted := strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key+"/")
		if wanted && !hidden(e.Name) {
			entries = append(entries, entry{e, path.Join(at, e.Name)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	kept := entries[:0]
	for _, e := range entries {
		if e.Attr.Type == remote.Symlink {
			e.Attr, e.at, err = l.links.stat(l.ctx, e.at)
			switch remote.StatusOf(err) {
			case remote.NoEnt, remote.NotDir:
				continue // it leads nowhere
			}
			if err != nil {
				return nil, err
			}
		}
		switch e.Attr.Type {
		case remote.Directory:
			e.Name += "/"
		case remote.Regular:
		default:
			continue // a device or a socket
		}
		kept = append(kept, e)
	}
	return kept, nil
}

// hidden tells whether a name is among stager's own.
func hidden(name string) bool {
	return name == private || strings.HasPrefix(name, Temporary)
}
