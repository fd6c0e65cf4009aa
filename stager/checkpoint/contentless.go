package checkpoint

import (
	"io/fs"

	"github.com/stager-dev/stager/window/disk"
)

// contentless lists the entries of a checkpoint that have no content to save: FIFOs, sockets,
// devices, and links to them. It skips entries that it cannot stat, because files returns that
// error.
func (t tree) contentless() (empty []Omission) {
	if t.only != "" {
		return nil
	}
	_ = fs.WalkDir(disk.FS(t.root), ".", func(p string, d fs.DirEntry, err error) error { // see above
		switch {
		case err != nil:
			return nil
		case d.IsDir() && p != "." && ours(p):
			return fs.SkipDir
		}
		mode := d.Type()
		if mode == fs.ModeSymlink {
			if info, err := t.root.Stat(p); err == nil {
				mode = info.Mode().Type()
			}
		}
		if !mode.IsRegular() && !mode.IsDir() && mode != fs.ModeSymlink {
			empty = append(empty, Omission{p, "a " + typeName(mode)})
		}
		return nil
	})
	return empty
}
