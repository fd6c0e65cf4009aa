package sftp

import (
	"context"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
)

// List implements backends.Source. Attributes arrive with the names, so a file needs no request of
// its own. List keeps in memory only the entries of the directories between the root and its
// position.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		// All keys with the prefix are below one directory: the prefix up to its last slash.
		dir := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
			if checkKey("list", dir) != nil {
				return // no key has this prefix
			}
		}
		if err := ended(ctx, "list", prefix); err != nil {
			yield(backends.Object{}, err)
			return
		}
		l := &lister{ctx: ctx, b: b, prefix: prefix, yield: yield}
		l.dir(dir, dir)
	}
}

type lister struct {
	ctx    context.Context // lives for one listing
	b      *Backend
	prefix string
	yield  func(backends.Object, error) bool
	within []string // the open directories, to detect link cycles
}

// entry is a name in a directory.
type entry struct {
	name string // directories end in "/"
	info os.FileInfo
	real string // path of a directory without links
}

// dir yields the objects below dir, whose path without links is at. It returns false to stop.
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
		name, isDir := strings.CutSuffix(e.name, "/")
		key := path.Join(dir, name)
		if isDir && !l.dir(key, e.real) || !isDir && !l.yield(describe(key, e.info), nil) {
			return false
		}
	}
	return true
}

// entries returns the entries of dir that may lead to keys with the prefix, in key order. A
// directory sorts with a trailing slash: "a-b" sorts before the keys in "a", and these before "a0".
func (l *lister) entries(dir, at string) ([]entry, error) {
	s, err := l.b.pool.get(l.ctx)
	if err != nil {
		return nil, err
	}
	infos, err := call(l.ctx, s, func(c *sftp.Client) ([]os.FileInfo, error) { return l.b.readDir(l.ctx, c, dir) }, nil)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, info := range infos {
		name := info.Name()
		key := path.Join(dir, name)
		wanted := strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key+"/")
		if !wanted || hidden(name) {
			continue
		}
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || !utf8.ValidString(name) {
			return nil, backends.Errorf(backends.Unsupported, "list", dir, "the server lists the invalid name %q: rename it on the server", name)
		}
		e := entry{name, info, path.Join(at, name)}
		what, err := l.follow(s, key, &e)
		if err != nil {
			return nil, err
		}
		if what != "" {
			backends.Skip(l.ctx, backends.Skipped{Key: key, What: what})
			continue
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	// A directory that changes during the listing may return a name twice.
	return slices.CompactFunc(entries, func(a, b entry) bool { return a.name == b.name }), nil
}

// follow resolves a link and marks a directory. It returns a description of an entry that is
// neither a directory nor a file.
func (l *lister) follow(s *session, key string, e *entry) (skipped string, err error) {
	if e.info.Mode()&fs.ModeSymlink != 0 {
		e.info, err = l.b.stat(l.ctx, s, key)
		if backends.KindOf(missing("stat", key, err)) == backends.NotExist && err != nil {
			return "a link that leads nowhere", nil
		}
		if err == nil && e.info.IsDir() {
			e.real, err = call(l.ctx, s, func(c *sftp.Client) (string, error) { return l.b.realPath(c, key) }, nil)
		}
		if err != nil {
			return "", err
		}
	}
	switch mode := e.info.Mode(); {
	case mode.IsDir():
		e.name += "/"
	case mode.IsRegular():
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO", nil
	default:
		return "a device or a socket", nil
	}
	return "", nil
}

// realPath returns the path of a directory without links, relative to the root of the listing if it
// is below the directory of the URL.
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
		return path.Join(b.base, below), nil
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
