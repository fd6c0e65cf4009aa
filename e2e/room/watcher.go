package room

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Watcher measures how many bytes a directory takes, as du does: the blocks of its files and
// directories, stager's own among them. It also looks in /proc for files that were unlinked and
// are still open. Hard links count once.
//
// A walk takes time, in which one file may go and another come, so that both are seen though
// they were never there together. What two walks in a row have seen was all there at the moment
// between them; that is what counts.
type Watcher struct {
	Dir string
	// Root is the beginning of Dir that Pid does not see, because its mounts are others.
	Root string
	// Pid is the process whose unlinked open files count; 0: those of all processes.
	Pid int

	mu    sync.Mutex // guards all below
	peak  int64
	looks int
}

// Run samples every few milliseconds until ctx ends, and once more then.
func (w *Watcher) Run(ctx context.Context) {
	for {
		ended := ctx.Err() != nil
		w.sample()
		if ended {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// sample looks twice, and counts what both looks saw.
func (w *Watcher) sample() {
	before := w.look()
	var bytes int64
	for f, size := range w.look() {
		bytes += min(size, before[f])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peak = max(w.peak, bytes)
	w.looks++
}

// Peak returns the most that was seen, and in how many samples.
func (w *Watcher) Peak() (bytes int64, looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak, w.looks
}

// file is one file for ever: inode numbers come again, with another time of birth.
type file struct {
	ino         uint64
	born, nanos int64
}

// look sees every file and directory once, by whatever name.
func (w *Watcher) look() map[file]int64 {
	seen := make(map[file]int64)
	count := func(path string, flags int) {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
		if err == nil {
			seen[file{st.Ino, st.Btime.Sec, int64(st.Btime.Nsec)}] = int64(st.Blocks) * 512
		}
	}
	_ = filepath.WalkDir(w.Dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			count(path, unix.AT_SYMLINK_NOFOLLOW)
		}
		return nil // what vanishes while one looks is not there
	})
	of := "[0-9]*"
	if w.Pid != 0 {
		of = strconv.Itoa(w.Pid)
	}
	fds, _ := filepath.Glob("/proc/" + of + "/fd/*")
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		target, unlinked := strings.CutSuffix(target, " (deleted)")
		if err == nil && unlinked && (strings.HasPrefix(target, w.Dir+"/") || strings.HasPrefix(target, strings.TrimPrefix(w.Dir, w.Root)+"/")) {
			count(fd, 0)
		}
	}
	return seen
}
