package smb

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
)

var _ backends.Sweeper = (*Backend)(nil)

// Sweep implements backends.Sweeper. It removes temporary files, orphaned claims (see claim.go),
// and directories that are empty afterwards or that a killed writer left empty. A file that a
// client has open is in use, and the server does not remove it.
func (b *Backend) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	dir := strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
	if dir == "" {
		dir = "."
	}
	if dir != "." && checkKey("sweep", dir, b.pool.dialer.mapped) != nil {
		return nil // no key has this prefix
	}
	s, err := b.pool.get(ctx)
	if err != nil {
		return err
	}
	_, err = sweepDir(ctx, s, dir, prefix, over)
	return classify("sweep", prefix, err)
}

// sweepDir reports whether the directory was empty.
func sweepDir(ctx context.Context, s *session, dir, prefix string, over func(backends.Orphan) bool) (empty bool, err error) {
	infos, err := readDir(ctx, s, dir)
	if err != nil {
		return false, err
	}
	removed := false
	for _, info := range infos {
		key := path.Join(dir, info.Name())
		temporary := strings.HasPrefix(info.Name(), Temporary)
		link := info.Sys().(*smb2.FileStat).ReparsePointTag
		switch {
		case link == symbolicLink || link == mountPoint:
			continue
		case info.IsDir() && !temporary && (strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key+"/")):
			empty, err := sweepDir(ctx, s, key, prefix, over)
			if err != nil {
				return false, err
			}
			if empty && strings.HasPrefix(key, prefix) && over(backends.Orphan{Key: path.Join(key, Temporary), Directory: true, Touched: info.ModTime()}) {
				prune(ctx, s, key)
			}
			continue
		case !temporary, !strings.HasPrefix(key, prefix), !over(backends.Orphan{Key: key, Size: info.Size(), Touched: info.ModTime(), Marked: true}):
			continue
		case info.IsDir(): // a directory of claims
			flags, err := readDir(ctx, s, key)
			if err != nil {
				return false, err
			}
			for _, flag := range flags {
				if err := sweepPath(ctx, s, path.Join(key, flag.Name())); err != nil {
					return false, err
				}
			}
		}
		if err := sweepPath(ctx, s, key); err != nil {
			return false, err
		}
		removed = true
	}
	if removed {
		prune(ctx, s, dir)
	}
	return len(infos) == 0, nil
}

// readDir lists a directory. A missing directory has no entries.
func readDir(ctx context.Context, s *session, dir string) (infos []os.FileInfo, err error) {
	err = patiently(ctx, elsewhere, func() error {
		infos, err = call(ctx, s, func(share *smb2.Share) ([]os.FileInfo, error) {
			f, err := share.Open(dir)
			if err != nil {
				return nil, err
			}
			defer f.Close() // read-only
			infos, err := f.Readdir(-1)
			if errors.Is(err, io.EOF) || status(err) == statusNoSuchFile {
				err = nil
			}
			return infos, err
		}, nil)
		return err
	})
	if backends.KindOf(missing("sweep", dir, err)) == backends.NotExist {
		return nil, nil
	}
	return infos, err
}

// sweepPath removes a file or directory. It ignores one that is open, missing or not empty.
func sweepPath(ctx context.Context, s *session, name string) error {
	err := removePath(ctx, s, name)
	if errors.Is(err, fs.ErrNotExist) || elsewhere(err) || status(err) == statusNotEmpty {
		return nil
	}
	return err
}
