package disk

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Orphans are incoming files that earlier processes left behind to be resumed. Sweep removes those
// that are not claimed; otherwise they would take space forever.
type Orphans struct {
	dir    *Dir
	held   map[string]int64 // bytes on disk by name
	others []string         // records whose file may be gone
}

// Orphans lists them. Call it before the first Incoming of this process.
func (f *Dir) Orphans() (*Orphans, error) {
	dir, err := OpenDir(f.incoming)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // opened for reading
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	l := &Orphans{dir: f, held: make(map[string]int64)}
	for _, name := range names {
		if strings.Contains(name, ".") {
			l.others = append(l.others, name)
			if id, tree := strings.CutSuffix(name, treeSuffix); tree {
				l.held[id] = 0 // their size is not needed
			}
			continue
		}
		var st unix.Stat_t
		err := retryErr(func() error { return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
		if err != nil {
			return nil, &fs.PathError{Op: "stat", Path: path.Join(incomingDir, name), Err: err}
		}
		l.held[name] = st.Blocks * 512
	}
	return l, nil
}

// None reports whether there are no orphans.
func (l *Orphans) None() bool { return len(l.held)+len(l.others) == 0 }

// Claim marks the file of an id as needed, so that Sweep keeps it. It returns the bytes on disk
// that the file takes already.
func (l *Orphans) Claim(id string) int64 {
	if len(l.held) == 0 {
		return 0
	}
	name := incomingName(id)
	held, ok := l.held[name]
	if ok {
		delete(l.held, name)
		for i, other := range l.others {
			if strings.HasPrefix(other, name) {
				l.others[i] = ""
			}
		}
	}
	return held
}

// Sweep removes the orphans that were not claimed.
func (l *Orphans) Sweep() (err error) {
	remove := func(name string) {
		if rm := l.dir.incoming.RemoveAll(name); rm != nil {
			err = errors.Join(err, rm)
		}
	}
	for name := range l.held {
		remove(name)
	}
	for _, name := range l.others {
		if name != "" {
			remove(name)
		}
	}
	return err
}
