package smb

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
)

// List implements backends.Source. It keeps in memory only the entries of the directories between
// the root and its position.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		// All keys with the prefix are below one directory: the prefix up to its last slash.
		dir := "."
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
		}
		if err := ended(ctx, "list", prefix); err != nil {
			yield(backends.Object{}, err)
			return
		}
		if dir != "." && checkKey("list", dir, b.pool.dialer.mapped) != nil {
			return // no key has this prefix
		}
		l := &lister{ctx: ctx, b: b, prefix: prefix, yield: yield}
		l.dir(dir, 0)
	}
}

type lister struct {
	ctx    context.Context // lives for one listing
	b      *Backend
	prefix string
	yield  func(backends.Object, error) bool
	within []uint64 // ids of the open directories, to detect link cycles
}

// entry is one name in a directory listing.
type entry struct {
	name string // directories end in "/"
	info *smb2.FileStat
}

// dir yields the objects below dir. It returns false to stop.
func (l *lister) dir(dir string, id uint64) bool {
	if id != 0 && slices.Contains(l.within, id) {
		return true
	}
	l.within = append(l.within, id)
	defer func() { l.within = l.within[:len(l.within)-1] }()
	entries, err := l.entries(dir)
	if err != nil {
		return l.fail(err)
	}
	for _, e := range entries {
		if err := ended(l.ctx, "list", l.prefix); err != nil {
			return l.fail(err)
		}
		bare, isDir := strings.CutSuffix(e.name, "/")
		key := path.Join(dir, bare)
		goOn := false
		if isDir {
			goOn = l.dir(key, e.info.FileId)
		} else {
			goOn = l.yield(describe(key, e.info), nil)
		}
		if !goOn {
			return false
		}
	}
	return true
}

func (l *lister) fail(err error) bool {
	l.yield(backends.Object{}, classify("list", l.prefix, err))
	return false
}

// entries returns the entries of dir that may lead to keys with the prefix, in key order. A
// directory sorts with a trailing slash: "a-b" sorts before the keys in "a", and these before "a0".
// A missing directory has no entries.
func (l *lister) entries(dir string) (entries []entry, err error) {
	s, err := l.b.pool.get(l.ctx)
	if err != nil {
		return nil, err
	}
	err = patiently(l.ctx, busy, func() error {
		entries, err = call(l.ctx, s, func(share *smb2.Share) ([]entry, error) { return l.read(share, dir) }, nil)
		return err
	})
	if backends.KindOf(missing("list", dir, err)) == backends.NotExist {
		if len(l.within) > 1 { // the top directory may never have existed
			backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory", Vanished: true})
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kept := entries[:0]
	for _, e := range entries {
		link := e.info.ReparsePointTag == symbolicLink || e.info.ReparsePointTag == mountPoint
		if link {
			// A link leads to a file, a directory, or nowhere.
			info, err := statPath(l.ctx, s, path.Join(dir, e.name))
			if backends.KindOf(missing("list", dir, err)) == backends.NotExist {
				backends.Skip(l.ctx, backends.Skipped{Key: path.Join(dir, e.name), What: "a broken link"})
				continue
			}
			if err != nil {
				return nil, err
			}
			e.info = info
		}
		if e.info.IsDir() {
			e.name += "/"
		}
		kept = append(kept, e)
	}
	if len(kept) == 0 && len(l.within) > 1 {
		backends.Skip(l.ctx, backends.Skipped{Key: dir + "/", What: "a directory without files"})
	}
	slices.SortFunc(kept, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return kept, nil
}

// Tags of reparse points that are links. Readers can ignore other tags, such as those of
// deduplicated files.
const (
	symbolicLink = 0xA000000C
	mountPoint   = 0xA0000003
)

// read reads a directory.
func (l *lister) read(share *smb2.Share, dir string) (entries []entry, err error) {
	f, err := share.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read-only
	for pause := time.Millisecond; ; {
		infos, err := f.Readdir(1024)
		if err != nil && status(err) != 0 {
			if info, serr := statFile(f); serr == nil && !info.IsDir() {
				return nil, fs.ErrNotExist // servers return various errors for listing a file
			}
		}
		if status(err) == statusInvalidParameter && pause < 2*time.Second {
			time.Sleep(pause) // too few credits, as in statFile
			pause *= 2
			continue
		}
		for _, info := range infos {
			key := path.Join(dir, info.Name())
			wanted := strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key+"/")
			if !wanted || strings.HasPrefix(info.Name(), Temporary) {
				continue
			}
			if why := l.unreachable(info.Name()); why != "" {
				return nil, backends.Errorf(backends.Unsupported, "list", key,
					"the server lists an invalid name, %s: rename it on the server", why)
			}
			entries = append(entries, entry{info.Name(), info.Sys().(*smb2.FileStat)})
		}
		if errors.Is(err, io.EOF) || status(err) == statusNoSuchFile {
			return entries, nil
		}
		if err == nil {
			err = l.ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// unreachable returns why a listed name cannot be requested, or "".
func (l *lister) unreachable(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return `which is empty or contains "/"`
	}
	return checkName(name, l.b.pool.dialer.mapped)
}
