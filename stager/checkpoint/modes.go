package checkpoint

import (
	"errors"
	"io/fs"
	"path"

	"github.com/stager-dev/stager/window/disk"
)

// Other programs may run as the same user as stager, such as the trainer. When one of them had
// changed the mode of stager's own directories or files, every later process ended with 77, and
// the checkpoints that stager held there were not saved.

// restoreModes gives the owner access again to all of stager's own directories and files. It leaves
// alone what belongs to another user, files that have a second name, and the trainer's files in
// snapshots.
func (u *Uploader) restoreModes() error { return u.restoreModesBelow(private, true) }

func (u *Uploader) restoreModesBelow(name string, files bool) error {
	if err := u.restoreMode(name); err != nil {
		return err
	}
	entries, err := fs.ReadDir(disk.FS(u.root), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		name := path.Join(name, e.Name())
		switch {
		case e.IsDir():
			err = errors.Join(err, u.restoreModesBelow(name, files && e.Name() != dataDir))
		case files && e.Type().IsRegular():
			err = errors.Join(err, u.restoreMode(name))
		}
	}
	return err
}

// restoreMode gives the owner access to one directory or file.
func (u *Uploader) restoreMode(name string) error {
	was, restored, err := disk.RestoreMode(u.root, name, func(mode fs.FileMode) fs.FileMode {
		if mode.IsDir() {
			return mode | 0o700
		}
		return mode | 0o600
	})
	if restored {
		u.log.Warn("the mode of a file of stager was changed, restoring it", "path", name, "mode", was.String())
	}
	return err
}
