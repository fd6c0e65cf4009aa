package file

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// List implements backends.Source. It keeps only the names in the directories between the root and
// the current one, so the tree may have any size.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return b.list(ctx, prefix, false)
}

// ListLevel implements backends.LevelLister. It reads one directory.
func (b *Backend) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return b.list(ctx, prefix, true)
}

func (b *Backend) list(ctx context.Context, prefix string, level bool) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		root, err := b.open(false)
		if err != nil {
			yield(backends.Object{}, classify("list", prefix, err))
			return
		}
		// Everything below the last slash of the prefix is in one directory.
		dir := "."
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
			if checkKey("list", dir) != nil {
				return // no key begins with this prefix
			}
		}
		l := &lister{ctx: ctx, root: root, prefix: prefix, level: level, yield: yield}
		l.dir(dir)
	}
}

type lister struct {
	ctx    context.Context // the context of one listing
	root   *os.Root
	prefix string
	level  bool // directories are yielded instead of what is below them
	yield  func(backends.Object, error) bool
	within []fs.FileInfo // the parent directories, to detect loops of links
}

// dir yields the objects below dir and reports whether to continue.
func (l *lister) dir(dir string) bool {
	names, info, err := l.names(dir)
	if errors.Is(err, errCycle) {
		backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: err.Error()})
		return true
	}
	if err != nil {
		if dir != "." && backends.KindOf(err) == backends.NotExist {
			if len(l.within) > 0 { // otherwise it may never have existed
				backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory", Vanished: true})
			}
			return true
		}
		l.yield(backends.Object{}, err)
		return false
	}
	l.within = append(l.within, info)
	defer func() { l.within = l.within[:len(l.within)-1] }()
	if len(names) == 0 && dir != "." {
		backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory without files"})
	}
	for _, name := range names {
		if err := fileshare.Ended(l.ctx, "list", l.prefix); err != nil {
			l.yield(backends.Object{}, err)
			return false
		}
		bare, isDir := strings.CutSuffix(name, "/")
		next := l.file
		switch {
		case isDir && l.level:
			next = func(dir string) bool { return l.yield(backends.Object{Key: dir + "/"}, nil) }
		case isDir:
			next = l.dir
		}
		if !next(path.Join(dir, bare)) {
			return false
		}
	}
	return true
}

// errCycle is returned for a directory that contains itself.
var errCycle = errors.New("a link to a directory above it")

// names returns the entries of dir that may lead to keys with the prefix, in key order. A directory
// is sorted with a trailing slash, so that "a-b" precedes the contents of "a", which precede "a0".
func (l *lister) names(dir string) (names []string, info fs.FileInfo, err error) {
	f, err := l.root.Open(dir)
	if err != nil {
		return nil, nil, missing("list", dir, err)
	}
	defer f.Close() // opened only to read
	if info, err = f.Stat(); err != nil {
		return nil, nil, classify("list", dir, err)
	}
	if slices.ContainsFunc(l.within, func(up fs.FileInfo) bool { return os.SameFile(up, info) }) {
		return nil, nil, errCycle
	}
	for {
		entries, err := f.ReadDir(1024)
		for _, e := range entries {
			key := path.Join(dir, e.Name())
			wanted := strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key+"/")
			if !wanted || hidden(key) {
				continue
			}
			mode, err := l.follow(key, e.Type())
			if err != nil {
				return nil, nil, err
			}
			switch {
			case mode.IsDir():
				names = append(names, e.Name()+"/")
			case mode.IsRegular():
				names = append(names, e.Name())
			default:
				backends.Skip(l.ctx, backends.Skipped{Key: key, What: typeName(mode)})
			}
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, info, nil
		}
		if err == nil {
			err = fileshare.Ended(l.ctx, "list", l.prefix)
		}
		if err != nil {
			return nil, nil, missing("list", dir, err)
		}
	}
}

// follow returns the type of a symbolic link's target, or mode if key is not a link.
func (l *lister) follow(key string, mode fs.FileMode) (fs.FileMode, error) {
	if mode&fs.ModeSymlink == 0 {
		return mode, nil
	}
	info, err := l.root.Stat(key)
	if vanished(err) {
		return mode, nil
	}
	if escapes(err) { // an error of a listing is printed without its key
		return mode, backends.Errorf(backends.Permission, "list", key,
			"%q is a symbolic link that points outside the directory; use the target directory as a separate store", key)
	}
	if err != nil {
		return mode, classify("list", key, err)
	}
	return info.Mode().Type(), nil
}

// file yields the file at key, if it is still one.
func (l *lister) file(key string) bool {
	info, err := l.root.Stat(key)
	if vanished(err) || err == nil && !info.Mode().IsRegular() {
		backends.Skip(l.ctx, backends.Skipped{Key: key, What: "a file", Vanished: true})
		return true
	}
	if err != nil {
		l.yield(backends.Object{}, classify("list", key, err))
		return false
	}
	return l.yield(describe(key, info), nil)
}
