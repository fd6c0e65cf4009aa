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

// Watcher measures how many bytes a directory costs, as du does: the blocks of its files and
// directories, stager's own among them. It also looks in /proc for files that were unlinked and
// are still open somewhere. Hard links count once.
//
// A walk takes time, in which one file may go and another come, so that both are
// seen though they were never there together. What two walks in a row have seen
// was all there at the moment between them; that is what counts.
type Watcher struct {
	Dir string
	// Shards has the bytes of files alone counted, without those that stager keeps beside them.
	Shards bool

	mu    sync.Mutex // guards all below
	peak  int64
	looks int
}

// Run looks every few milliseconds until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	before := w.look()
	for {
		ended := ctx.Err() != nil
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
		if ended {
			return
		}
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

// look sees every file and directory once, by whatever name.
func (w *Watcher) look() map[file]int64 {
	seen := make(map[file]int64)
	count := func(path string) {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
		regular := st.Mode&unix.S_IFMT == unix.S_IFREG
		if err != nil || !regular && (w.Shards || st.Mode&unix.S_IFMT != unix.S_IFDIR) {
			return
		}
		took := int64(st.Blocks) * 512
		if w.Shards { // what is reserved costs as much as what is written
			took = max(int64(st.Size), took-4095)
		}
		seen[file{st.Ino, st.Btime.Sec, int64(st.Btime.Nsec)}] = took
	}
	_ = filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != w.Dir && !(w.Shards && bookkeeping(path)) {
			count(path)
		}
		return nil // what vanishes while one looks is not there
	})
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		target, unlinked := strings.CutSuffix(target, " (deleted)")
		if err == nil && unlinked && strings.HasPrefix(target, w.Dir+"/") && !(w.Shards && bookkeeping(target)) {
			count(fd)
		}
	}
	return seen
}

// bookkeeping is what stager keeps beside shards.
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
		ended := ctx.Err() != nil
		now, err := s.used()
		s.peak, s.err = max(s.peak, now-s.first), err
		if s.looks++; ended {
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
