package file

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
)

var _ backends.Sweeper = (*Backend)(nil)

// Sweep implements backends.Sweeper: it removes temporary files, and the folders that
// are empty without them.
func (b *Backend) Sweep(ctx context.Context, prefix string, over func(backends.Remains) bool) error {
	root, err := b.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return classify("sweep", prefix, err)
	}
	top := path.Dir(prefix + "x") // the folder that holds all that begins so
	err = fs.WalkDir(root.FS(), top, func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since its folder was listed
		case err != nil:
			return err
		case p == top:
			return nil
		case !strings.HasPrefix(p, prefix) && d.IsDir():
			return fs.SkipDir
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
		if !over(backends.Remains{Key: p, Size: info.Size(), Touched: info.ModTime()}) {
			return nil
		}
		if err := unlink(root, p, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		prune(root, path.Dir(p))
		return nil
	})
	return classify("sweep", prefix, err)
}
