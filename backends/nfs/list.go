package nfs

import (
	"cmp"
	"context"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/remote"
)

// List implements backends.Source. Attributes come with the names, so that a file
// costs no request of its own.
func (s *share) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		// Everything below the last slash of the prefix is in one folder.
		dir := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
			if checkKey("list", dir) != nil {
				return // no key begins so
			}
		}
		l := &lister{ctx: ctx, tree: s.tree, prefix: prefix, yield: yield}
		l.folder(dir)
	}
}

type lister struct {
	ctx    context.Context // it lives as long as one listing
	tree   remote.Tree
	prefix string
	yield  func(backends.Object, error) bool
}

// folder yields what lies below dir and tells whether to go on.
func (l *lister) folder(dir string) bool {
	entries, err := l.entries(dir)
	if err != nil {
		err = missing("list", dir, err)
		if backends.KindOf(err) == backends.NotExist || backends.KindOf(err) == backends.Changed {
			return true // it was removed meanwhile, or never was
		}
		l.yield(backends.Object{}, err)
		return false
	}
	for i, e := range entries {
		if err := ended(l.ctx, "list", l.prefix); err != nil {
			l.yield(backends.Object{}, err)
			return false
		}
		entries[i] = remote.Entry{} // its memory may go
		key := path.Join(dir, strings.TrimSuffix(e.Name, "/"))
		switch e.Attr.Type {
		case remote.Folder:
			if !l.folder(key) {
				return false
			}
		case remote.Symlink:
			l.yield(backends.Object{}, regular("list", key, e.Attr.Type))
			return false
		default:
			if !l.yield(describe(key, e.Attr), nil) {
				return false
			}
		}
	}
	return true
}

// entries are those in dir that may lead to keys with the prefix, in the order of the
// keys: a folder counts with the slash behind it, so that "a-b" stands before what is
// in "a", and that before "a0".
func (l *lister) entries(dir string) (entries []remote.Entry, err error) {
	err = l.tree.ReadDir(l.ctx, dir, func(e remote.Entry) error {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return backends.Errorf(backends.Unsupported, "list", dir, "the server has a file of the name %q, which no path can lead to", e.Name)
		}
		key := path.Join(dir, e.Name)
		wanted := strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key+"/")
		if !wanted || hidden(e.Name) {
			return nil
		}
		switch e.Attr.Type {
		case remote.Folder:
			e.Name += "/"
		case remote.Regular, remote.Symlink:
		default:
			return nil
		}
		entries = append(entries, e)
		return nil
	})
	slices.SortFunc(entries, func(a, b remote.Entry) int { return cmp.Compare(a.Name, b.Name) })
	// A folder that changes while it is read may show a name twice.
	entries = slices.CompactFunc(entries, func(a, b remote.Entry) bool { return a.Name == b.Name })
	return entries, err
}

// hidden tells whether a name is among stager's own.
func hidden(name string) bool {
	return name == private || strings.HasPrefix(name, Temporary)
}
