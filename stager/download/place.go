package download

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// within returns the key prefix of the destination if it is a directory of the source. Otherwise
// stager's records, and in the next run all fetched files, would be listed as objects. It returns
// "" if the destination lies elsewhere, and "./" if it is the source.
func (p *run) within() string {
	source, is := p.cfg.Store.LocalPath()
	if !is || p.cfg.Object != nil {
		return ""
	}
	from, err := filepath.EvalSymlinks(source)
	if err != nil {
		return ""
	}
	to, err := filepath.Abs(p.cfg.Dir)
	if err == nil {
		to, err = filepath.EvalSymlinks(to)
	}
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(from, to)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return ""
	}
	return rel + "/"
}

// refuseOwn refuses an object that lies in the destination.
func (p *run) refuseOwn(key, within string) error {
	switch {
	case within == "./":
		return backends.Errorf(backends.Invalid, "prefetch", p.cfg.Dir, "the destination %s is the source itself; use another one", p.cfg.Dir)
	case within != "" && strings.HasPrefix(key, within):
		return backends.Errorf(backends.Invalid, "prefetch", key, "the destination %s is a directory of the source, so it would be copied into itself; use another one, or exclude it with --exclude '%s**'", p.cfg.Dir, within)
	}
	return nil
}

// notThere returns the directories on the way to path that do not exist, the deepest first.
func notThere(path string) (dirs []string) {
	for {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return dirs
		}
		dirs = append(dirs, path)
		path = filepath.Dir(path)
	}
}

// fail ends a run that failed. If it fetched anything, the next run continues from that, and the
// log names what stays. Otherwise fail removes the records of a run that was the first in its
// directory, and the directories in made.
func (p *run) fail(made []string, first bool) {
	p.mu.Lock()
	fetched := p.summary.FetchedFiles
	p.mu.Unlock()
	left, err := p.dir.Orphans()
	if fetched > 0 || err != nil || !left.None() && p.meter.moved.Load() > 0 {
		p.log.Warn("the prefetch is not complete: complete files have their names, and the next run continues from them and from the unfinished ones",
			"files", fetched, "unfinished", filepath.Join(p.cfg.Dir, disk.Private))
		return
	}
	if !first {
		return
	}
	err = p.dir.Root().RemoveAll(disk.Private)
	for _, dir := range made {
		if err == nil {
			err = unix.Rmdir(dir) // removes an empty directory, never a file or a link
		}
	}
	if err != nil && !errors.Is(err, unix.ENOTEMPTY) { // another program put something there
		p.log.Warn("cannot remove the records of a run that fetched nothing", "error", err)
	}
}
