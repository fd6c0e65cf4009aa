package smb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// protocol makes the calls of a Backend for fileshare.
type protocol struct{ b *Backend }

var _ fileshare.Protocol = protocol{}

func (p protocol) CheckKey(op, key string) error {
	return checkKey(op, key, p.b.pool.dialer.mapped)
}

// Reserved keeps .stager visible: a share has no place for stager's own data.
func (protocol) Reserved(name string) bool { return strings.HasPrefix(name, fileshare.Temporary) }

func (p protocol) Unreachable(name string) string {
	if why := fileshare.Unreachable(name); why != "" {
		return why
	}
	return checkName(name, p.b.pool.dialer.mapped)
}

func (p protocol) Version(i fileshare.Info) backends.Version {
	if p.b.pool.ids.state.Load() == idsDiffer {
		i.ID = 0
	}
	return backends.Version(fmt.Sprintf("%x-%x-%x", i.Size, i.ModTime.UnixNano(), i.ID))
}

func (protocol) Missing(op, key string, err error) error { return missing(op, key, err) }

// Locate identifies the directory as ReadDir identifies those that lead back to it.
func (p protocol) Locate(ctx context.Context, dir string) (fileshare.Place, error) {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return fileshare.Place{}, err
	}
	info, err := statPath(ctx, s, cmp.Or(dir, "."))
	return fileshare.Place{Path: dir, At: place(dir, info)}, err
}

// ReadDir identifies directories by their file ids. Servers without ids send 0; link cycles are then
// not detected.
func (p protocol) ReadDir(ctx context.Context, dir fileshare.Place, wanted func(name string) bool) (entries []fileshare.Entry, err error) {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return nil, err
	}
	err = patiently(ctx, busy, func() error {
		entries, err = call(ctx, s, func(share *smb2.Share) ([]fileshare.Entry, error) { return readDir(ctx, share, dir.Path, wanted) }, nil)
		return err
	})
	if len(entries) > 0 {
		p.settle(ctx, s, dir.Path)
	}
	return entries, err
}

func (p protocol) Follow(ctx context.Context, key string, e fileshare.Entry) (fileshare.Entry, error) {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return e, err
	}
	info, err := statPath(ctx, s, key)
	if err != nil {
		return e, err
	}
	e.Info = info
	e.At = place(key, e.Info)
	return e, nil
}

// place identifies a directory.
func place(key string, i fileshare.Info) string {
	if i.ID == 0 || i.ID == noUniqueID {
		return key
	}
	return fmt.Sprintf("/%x", i.ID)
}

// RemoveOrphan also removes orphaned claims (see claim.go): it removes a temporary file or a directory of claims. It ignores one that is open or not
// empty.
func (p protocol) RemoveOrphan(ctx context.Context, key string, e fileshare.Entry) error {
	if e.Claims {
		flags, err := p.ReadDir(ctx, fileshare.Place{Path: key}, func(string) bool { return true })
		if err != nil && backends.KindOf(missing("sweep", key, err)) != backends.NotExist {
			return err
		}
		for _, flag := range flags {
			if err := p.RemoveOrphan(ctx, path.Join(key, flag.Name), fileshare.Entry{}); err != nil {
				return err
			}
		}
	}
	err := p.remove(ctx, key)
	if errors.Is(err, fs.ErrNotExist) || elsewhere(err) || status(err) == statusNotEmpty {
		return nil
	}
	return err
}

func (p protocol) Prune(ctx context.Context, dir fileshare.Place) {
	fileshare.Prune(dir.Path, "", func(dir string) error { return p.remove(ctx, dir) })
}

// Tags of reparse points that are links. Readers can ignore other tags, such as those of
// deduplicated files.
const (
	symbolicLink = 0xA000000C
	mountPoint   = 0xA0000003
)

// readDir reads a directory.
func readDir(ctx context.Context, share *smb2.Share, dir string, wanted func(name string) bool) (entries []fileshare.Entry, err error) {
	if dir == "" {
		dir = "."
	}
	f, err := share.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read-only
	for pause := time.Millisecond; ; {
		infos, err := f.Readdir(1024)
		if err != nil && status(err) != 0 {
			if info, serr := statFile(f); serr == nil && !info.Type.IsDir() {
				return nil, fs.ErrNotExist // servers return various errors for listing a file
			}
		}
		if status(err) == statusInvalidParameter && pause < 2*time.Second {
			time.Sleep(pause) // too few credits, as in statFile
			pause *= 2
			continue
		}
		for _, info := range infos {
			if wanted(info.Name()) {
				entries = append(entries, entry(dir, info))
			}
		}
		if errors.Is(err, io.EOF) || status(err) == statusNoSuchFile {
			return entries, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// entry returns the entry for a name in a directory.
func entry(dir string, info os.FileInfo) fileshare.Entry {
	stat := info.Sys().(*smb2.FileStat)
	e := fileshare.Entry{Name: info.Name(), Info: attributes(stat)}
	if stat.ReparsePointTag == symbolicLink || stat.ReparsePointTag == mountPoint {
		e.Type = fs.ModeSymlink
	}
	e.At = place(path.Join(dir, e.Name), e.Info)
	e.Claims = e.Type.IsDir() && strings.HasPrefix(e.Name, fileshare.Temporary)
	return e
}

// attributes returns the attributes of a file.
func attributes(info *smb2.FileStat) fileshare.Info {
	return fileshare.Info{Type: info.Mode() & fs.ModeDir, Size: info.EndOfFile, ModTime: info.LastWriteTime, ID: info.FileId}
}
