package trial

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Watcher measures how many bytes of files a folder costs, as a stranger would: by
// walking it, and by looking in /proc for files that were unlinked and are still
// open somewhere. Hard links count once.
type Watcher struct {
	Dir string

	mu    sync.Mutex // guards all below
	peak  int64
	looks int
}

// Run looks every few milliseconds until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		bytes := w.look()
		w.mu.Lock()
		w.peak = max(w.peak, bytes)
		w.looks++
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Peak is the most that was seen, in how many looks.
func (w *Watcher) Peak() (bytes int64, looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak, w.looks
}

// bookkeeping is what stager writes beside the shards: it is small, and not what the
// bound speaks of.
var bookkeeping = map[string]bool{"LOCK": true, "journal": true, "plan": true, "cursor": true}

// look counts once. A file that is renamed while it walks may be seen at both of
// its names or at none: the inode makes it one.
func (w *Watcher) look() (bytes int64) {
	type inode struct{ dev, ino uint64 }
	sizes := make(map[inode]int64)
	count := func(info fs.FileInfo) {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			// What is reserved costs as much as what is written.
			sizes[inode{uint64(st.Dev), st.Ino}] = max(st.Size, st.Blocks*512-4095)
		}
	}
	_ = filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || bookkeeping[d.Name()] || strings.HasSuffix(path, ".ranges") || strings.HasPrefix(d.Name(), "journal") {
			return nil //nolint:nilerr // what vanishes while one looks is not there
		}
		if info, err := d.Info(); err == nil {
			count(info)
		}
		return nil
	})
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(target, w.Dir+"/") || !strings.HasSuffix(target, " (deleted)") {
			continue
		}
		if info, err := os.Stat(fd); err == nil && !strings.Contains(target, "journal") {
			count(info)
		}
	}
	for _, size := range sizes {
		bytes += size
	}
	return bytes
}
