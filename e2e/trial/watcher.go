package trial

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Watcher measures how many bytes of files a directory costs, as a stranger would: by
// walking it, and by looking in /proc for files that were unlinked and are still
// open somewhere. Hard links count once.
//
// A walk takes time, in which one file may go and another come, so that both are
// seen though they were never there together. What two walks in a row have seen
// was all there at the moment between them; that is what counts.
type Watcher struct {
	Dir string

	mu    sync.Mutex // guards all below
	peak  int64
	looks int
}

// Run looks every few milliseconds until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	before := w.look()
	for ctx.Err() == nil {
		now := w.look()
		var bytes int64
		for f, size := range now {
			bytes += min(size, before[f])
		}
		before = now
		w.mu.Lock()
		w.peak = max(w.peak, bytes)
		w.looks++
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Peak is the most that was seen, in how many looks.
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

// look sees every file once, by whatever name.
func (w *Watcher) look() map[file]int64 {
	seen := make(map[file]int64)
	count := func(path string) {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			// What is reserved costs as much as what is written.
			f := file{st.Ino, st.Btime.Sec, int64(st.Btime.Nsec)}
			seen[f] = max(int64(st.Size), int64(st.Blocks)*512-4095)
		}
	}
	_ = filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !bookkeeping(path) {
			count(path)
		}
		return nil // what vanishes while one looks is not there
	})
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		target, unlinked := strings.CutSuffix(target, " (deleted)")
		if err == nil && unlinked && strings.HasPrefix(target, w.Dir+"/") && !bookkeeping(target) {
			count(fd)
		}
	}
	return seen
}

// bookkeeping is what stager writes beside the shards: it is small, and not what the
// bound speaks of.
func bookkeeping(path string) bool {
	name := filepath.Base(path)
	return name == "LOCK" || name == "plan" || strings.HasPrefix(name, "sample.json") || strings.HasPrefix(name, "cursor") || strings.HasSuffix(name, ".jsonl") || strings.HasPrefix(name, "journal") || strings.HasSuffix(name, ".ranges") || strings.HasSuffix(name, ".tree.of")
}

// sampled is the space that a volume has in use, sampled every 20 ms against what was in use at the
// beginning. It counts all that the window causes: directories, journal and reports, too.
type sampled struct {
	used        func() (int64, error)
	first, peak int64
	looks       int
	err         error // of the first sample that failed
}

func (s *sampled) begin(used func() (int64, error)) (err error) {
	s.used = used
	s.first, err = used()
	return err
}

// run samples until ctx ends. The figures may be read when it has returned.
func (s *sampled) run(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.err == nil {
		now, err := s.used()
		s.peak, s.err = max(s.peak, now-s.first), err
		s.looks++
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
