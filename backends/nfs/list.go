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

// List implements backends.Source. Attributes arrive with the names, so a file needs no request of
// its own.
func (s *share) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		// All keys with the prefix are below one directory: the prefix up to its last slash.
		dir := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
			if checkKey("list", dir) != nil {
				return // no key has this prefix
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
	ctx    context.Context // lives for one listing
	links  *links
	prefix string
	yield  func(backends.Object, error) bool
	within []string // the open directories, to detect link cycles
}

// entry is a name in a directory and the path that it resolves to.
type entry struct {
	remote.Entry
	at string
}

// dir yields the objects below dir, whose path in the tree is at. It returns false to stop.
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
			if len(l.within) > 1 { // the top directory may never have existed
				backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory", Vanished: true})
			}
			return true
		}
		l.yield(backends.Object{}, err)
		return false
	}
	if len(entries) == 0 && len(l.within) > 1 {
		backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory without files"})
	}
	for i, e := range entries {
		if err := ended(l.ctx, "list", l.prefix); err != nil {
			l.yield(backends.Object{}, err)
			return false
		}
		entries[i] = entry{} // free its memory
		name, isDir := strings.CutSuffix(e.Name, "/")
		key := path.Join(dir, name)
		if isDir && !l.dir(key, e.at) || !isDir && !l.yield(describe(key, e.Attr), nil) {
			return false
		}
	}
	return true
}

// entries returns the entries of dir that may lead to keys with the prefix, in key order. A
// directory sorts with a trailing slash: "a-b" sorts before the keys in "a", and these before "a0".
func (l *lister) entries(dir, at string) (entries []entry, err error) {
	for range 3 {
		entries, err = l.read(dir, at)
		switch remote.StatusOf(err) {
		case remote.Stale, remote.FHExpired, remote.BadHandle, remote.BadCookie, remote.NotSame:
			continue // the directory was replaced, or the cookie became invalid
		}
		break
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
	// A directory that changes during the listing may return a name twice.
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.Name == b.Name })
	return entries, err
}

func (l *lister) read(dir, at string) (entries []entry, err error) {
	err = l.links.tree.ReadDir(l.ctx, at, func(e remote.Entry) error {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return backends.Errorf(backends.Unsupported, "list", dir, "the server has a file with the invalid name %q", e.Name)
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
		skip := func(what string) { backends.Skip(l.ctx, backends.Skipped{Key: path.Join(dir, e.Name), What: what}) }
		if e.Attr.Type == remote.Symlink {
			e.Attr, e.at, err = l.links.stat(l.ctx, e.at)
			switch remote.StatusOf(err) {
			case remote.NoEnt, remote.NotDir:
				skip("a link that leads nowhere")
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		switch e.Attr.Type {
		case remote.Directory:
			e.Name += "/"
		case remote.Regular:
		case remote.FIFO:
			skip("a FIFO")
			continue
		default:
			skip("a device or a socket")
			continue
		}
		kept = append(kept, e)
	}
	return kept, nil
}

// hidden reports whether a name is one of stager's own.
func hidden(name string) bool {
	return name == private || strings.HasPrefix(name, Temporary)
}
