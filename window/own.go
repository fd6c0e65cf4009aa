package window

import (
	"errors"
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// With Config.CountOwn, the window's own files count, too: its directories, the journal and its
// replacement during a compaction, the reports, Config.Scratch and Config.State. What grows with each item is in Item.Beside, so
// that measuring from time to time is enough.

const (
	// ownAtLeast is the minimum reserved for the window's own files.
	ownAtLeast = 128 << 10
	// ownFixed is the maximum for directories and small files of a window without readers.
	ownFixed = 64 << 10
	// ownReports is the minimum reserved for the reports.
	ownReports = 16 << 10
	// ownSpare is for growth between two measurements: readers' directories, partial blocks.
	ownSpare = 24 << 10
	// ownEvery is the time between two measurements.
	ownEvery = 50 * time.Millisecond
)

// leastOwn returns the minimum that the window's own files take of Config.Size.
func (c *Config) leastOwn() int64 {
	if !c.CountOwn {
		return 0
	}
	return c.Scratch + max(ownAtLeast, ownFixed+ownReports+2*c.journalReserve()+ownSpare)
}

// dirs returns the size to count for directories.
func (w *Window) dirs(room int64) int64 {
	if !w.cfg.CountOwn {
		return 0
	}
	return room
}

// journalReserve returns the size that is preallocated for the journal, and that it may reach
// before it is compacted.
func (c *Config) journalReserve() int64 {
	if !c.CountOwn {
		return 0
	}
	return min(max(c.Size/256, 8<<10), 4<<20) / disk.Block * disk.Block
}

// journalMost returns the size at which the journal is compacted.
func (w *Window) journalMost() int64 {
	if !w.cfg.CountOwn {
		return journalLimit
	}
	return max(w.cfg.journalReserve(), 2*w.journal.fresh)
}

// limitLocked returns the number of bytes that the last measurement leaves for items.
func (w *Window) limitLocked() int64 { return w.cfg.Size - w.space.ownMost - w.cfg.State() }

// ItemLimit returns the number of bytes that a single item may take, including Item.Beside.
func (w *Window) ItemLimit() int64 {
	w.measure(time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	return min(w.limitLocked(), w.cfg.Size-w.cfg.leastOwn()-w.cfg.State())
}

// measure measures the window's own files, unless that was done a moment ago. It holds no lock
// meanwhile: the limit that it sets has a reserve for what is added until the next measurement.
func (w *Window) measure(now time.Time) {
	w.mu.Lock()
	due := !now.Before(w.space.ownAt)
	if due {
		w.space.ownAt = now.Add(ownEvery)
	}
	w.mu.Unlock()
	if due {
		w.measureNow()
	}
}

// measureNow measures the window's own files.
func (w *Window) measureNow() {
	if !w.cfg.CountOwn {
		return
	}
	w.mu.Lock()
	file := w.journal.file
	w.mu.Unlock()
	fixed, reports, err := w.stage.own()
	var journal int64
	if info, err := file.Stat(); err == nil {
		journal = taken(info)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.troubleLocked("cannot stat the window's own files", err)
		return
	}
	w.space.measured(w.cfg.Scratch+w.cfg.State()+fixed+reports+journal,
		w.cfg.Scratch+max(ownAtLeast, fixed+max(reports, ownReports)+2*max(journal, w.journalMost())+ownSpare))
}

// taken returns the bytes that a file or directory takes, by the file system's count of blocks.
func taken(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }

// own returns the bytes of directories and state files, and of reports.
func (s *localDir) own() (fixed, reports int64, err error) {
	var errs []error
	add := func(sum *int64, name string) {
		info, err := s.Root().Lstat(name)
		if err == nil {
			*sum += taken(info)
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, name := range []string{".", disk.Private, disk.Private + "/LOCK", disk.Private + "/plan", cursorName, disk.Private + "/incoming", reportsDir} {
		add(&fixed, name)
	}
	for _, subdir := range []*disk.Subdir{s.ready, s.claimed, s.done, s.whole, s.held, s.pendingDir, s.leaving} {
		add(&fixed, subdir.Name())
	}
	readers, err := s.claimed.Names()
	if err != nil {
		return 0, 0, err
	}
	for _, name := range readers {
		add(&fixed, path.Join(s.claimed.Name(), name))
	}
	files, err := fs.ReadDir(disk.FS(s.Root()), reportsDir)
	for _, file := range files {
		add(&reports, path.Join(reportsDir, file.Name()))
	}
	return fixed, reports, errors.Join(append(errs, err)...)
}
