package sftp

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
)

var _ backends.Sweeper = (*Backend)(nil)

// Sweep implements backends.Sweeper. It removes temporary files, and directories that are empty
// afterwards or that a killed writer left empty. It does not follow links below the prefix.
func (b *Backend) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	dir := strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
	if dir != "" && checkKey("sweep", dir) != nil {
		return nil // no key has this prefix
	}
	s, err := b.pool.get(ctx)
	if err == nil {
		_, err = b.sweepDir(ctx, s, dir, prefix, over)
	}
	if err = missing("sweep", prefix, err); backends.KindOf(err) == backends.NotExist {
		return nil
	}
	return err
}

// sweepDir reports whether the directory was empty.
func (b *Backend) sweepDir(ctx context.Context, s *session, dir, prefix string, over func(backends.Orphan) bool) (empty bool, err error) {
	if err := ended(ctx, "sweep", dir); err != nil {
		return false, err
	}
	infos, err := call(ctx, s, func(c *sftp.Client) ([]os.FileInfo, error) { return b.readDir(ctx, c, dir) }, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // already removed
	}
	if err != nil {
		return false, err
	}
	for _, info := range infos {
		name := info.Name()
		key := path.Join(dir, name)
		switch {
		case name == "" || name == "." || name == ".." || strings.Contains(name, "/"):
		case info.IsDir() && !hidden(name) && (strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key+"/")):
			empty, err := b.sweepDir(ctx, s, key, prefix, over)
			if err != nil {
				return false, err
			}
			if empty && strings.HasPrefix(key, prefix) && over(backends.Orphan{Key: path.Join(key, Temporary), Directory: true, Touched: info.ModTime()}) {
				b.prune(ctx, s, key)
			}
		case info.Mode().IsRegular() && strings.HasPrefix(name, Temporary) && strings.HasPrefix(key, prefix):
			if !over(backends.Orphan{Key: key, Size: info.Size(), Touched: info.ModTime(), Marked: true}) {
				continue
			}
			err := run(ctx, s, func(c *sftp.Client) error { return c.Remove(b.at(key)) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
			b.prune(ctx, s, dir)
		}
	}
	return len(infos) == 0, nil
}
