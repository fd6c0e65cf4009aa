package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
)

var _ backends.Sweeper = (*Backend)(nil)

// Sweep implements backends.Sweeper. It removes temporary files, and directories that are empty,
// either without those files or because their creator was killed.
func (b *Backend) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	root, err := b.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return classify("sweep", prefix, err)
	}
	top := path.Dir(prefix + "x") // the directory that contains all matches
	err = fs.WalkDir(root.FS(), top, func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed since its directory was listed
		case err != nil:
			return err
		case p == top:
			return nil
		case !strings.HasPrefix(p, prefix) && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			return sweepDir(root, p, d, over)
		case !strings.HasPrefix(p, prefix), !strings.HasPrefix(d.Name(), Temporary), !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !over(backends.Orphan{Key: p, Size: info.Size(), Touched: info.ModTime(), Marked: true}) {
			return nil
		}
		remove := func() error { return unlink(root, p, 0) }
		if isLock(p) {
			remove = func() error { return sweepLock(root, p) }
		}
		if err := remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		prune(root, path.Dir(p))
		return nil
	})
	return classify("sweep", prefix, err)
}

// sweepDir removes an empty directory.
func sweepDir(root *os.Root, p string, d fs.DirEntry, over func(backends.Orphan) bool) error {
	entries, err := fs.ReadDir(root.FS(), p)
	if err != nil || len(entries) > 0 {
		return nil // the walk reports the error
	}
	if info, err := d.Info(); err == nil && over(backends.Orphan{Key: path.Join(p, Temporary), Directory: true, Touched: info.ModTime()}) {
		prune(root, p)
		return fs.SkipDir
	}
	return nil
}
