package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"strings"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// List implements backends.Source. It keeps in memory one page of each directory between the root
// and its position, and the entries that order holds back. A tree may be of any size.
func (b *store) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return b.listing(ctx, prefix, false)
}

// ListLevel implements backends.LevelLister. It reads one directory.
func (b *store) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return b.listing(ctx, prefix, true)
}

func (b *store) listing(ctx context.Context, prefix string, level bool) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		// All keys with the prefix are below one directory: the prefix up to its last slash.
		dir := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
			if checkKey("list", dir) != nil {
				return // no key has this prefix
			}
		}
		l := &lister{ctx: ctx, store: b, prefix: prefix, level: level, yield: yield}
		l.dir(dir)
	}
}

type lister struct {
	ctx      context.Context // lives for one listing
	store    *store
	prefix   string
	level    bool // directories are yielded instead of what is below them
	yield    func(backends.Object, error) bool
	reported bool // an omitted file was logged
	depth    int  // depth of the current directory
}

// dir yields the objects below dir. It returns false to stop.
func (l *lister) dir(dir string) bool {
	l.depth++
	defer func() { l.depth-- }()
	var order order
	after, empty := "", true
	for more := true; more; {
		var page []*hdfs.FileStatus
		err := l.store.with(l.ctx, "list", l.prefix, func(s *session) (err error) {
			page, more, err = s.list("/"+dir, after)
			return err
		})
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || notADir(err) {
				if l.depth > 1 { // the top directory may never have existed
					backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory", Vanished: true})
				}
				return true
			}
			l.yield(backends.Object{}, err)
			return false
		}
		for _, st := range page {
			name := string(st.GetPath())
			if name == "" {
				return true // dir is a file, which the listing of its parent contains
			}
			after = name
			if l.wanted(path.Join(dir, name), st) {
				empty = false
				e := entry{name: name, object: describe(path.Join(dir, name), st)}
				if isDir(st) {
					e.name += "/"
				}
				order.add(e)
			}
			if !l.drain(&order, after, false) {
				return false
			}
		}
		more = more && len(page) > 0
	}
	if empty && l.depth > 1 {
		backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory without files"})
	}
	return l.drain(&order, "", true)
}

// wanted reports whether an entry is a key with the prefix or may lead to one.
func (l *lister) wanted(key string, st *hdfs.FileStatus) bool {
	if fileshare.Reserved(path.Base(key)) {
		return false
	}
	if isDir(st) {
		return strings.HasPrefix(key+"/", l.prefix) || strings.HasPrefix(l.prefix, key+"/")
	}
	if !strings.HasPrefix(key, l.prefix) {
		return false
	}
	if st.GetFileType() != isFile {
		backends.Skip(l.ctx, backends.Skipped{Key: key, What: "a symbolic link"})
		return false
	}
	return true
}

// drain yields the entries that are next in key order.
func (l *lister) drain(o *order, seen string, all bool) bool {
	for {
		e, ok := o.next(seen, all)
		if !ok {
			return true
		}
		yield := l.file
		if strings.HasSuffix(e.name, "/") {
			yield = l.below
		}
		if !yield(e.object) {
			return false
		}
	}
}

// below yields a directory, or the objects in it.
func (l *lister) below(dir backends.Object) bool {
	if l.level {
		return l.yield(backends.Object{Key: dir.Key + "/"}, nil)
	}
	return l.dir(dir.Key)
}

// file yields a file unless it is still being created.
func (l *lister) file(obj backends.Object) bool {
	err := fileshare.Ended(l.ctx, "list", l.prefix)
	if err == nil && obj.Size == 0 {
		var open bool
		if open, err = l.stillEmpty(obj.Key); open && err == nil {
			return true
		}
	}
	if err != nil {
		l.yield(backends.Object{}, err)
		return false
	}
	return l.yield(obj, nil)
}

// stillEmpty reports whether an empty file is open for writing, and so not an object yet. It also
// returns true for a file that has vanished.
func (l *lister) stillEmpty(key string) (open bool, err error) {
	err = l.store.with(l.ctx, "list", key, func(s *session) error {
		open, err = s.beingWritten("/" + key)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		backends.Skip(l.ctx, backends.Skipped{Key: key, What: "a file", Vanished: true})
		return true, nil
	}
	if open {
		backends.Skip(l.ctx, backends.Skipped{Key: key, What: "a file that is being written, and empty so far"})
		if !l.reported {
			l.reported = true
			l.store.log.Warn("skipping files that are being written", "first", key)
		}
	}
	return open, err
}

func notADir(err error) bool {
	return isException(err, "ParentNotDirectoryException") || belowAFile(err)
}
