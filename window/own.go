package window

import (
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// What the window writes for itself counts, too, with Config.CountOwn: the directories
// that it keeps its files in, the journal and its successor while it is written anew, and
// the reports. What grows with each item is in Item.Beside, so that a look from time to
// time is enough.

const (
	// ownAtLeast is kept for the window's own files however few they are.
	ownAtLeast = 128 << 10
	// ownSpare is for what is looked at too late: readers' directories, blocks begun.
	ownSpare = 24 << 10
	// ownEvery is how often they are looked at.
	ownEvery = 50 * time.Millisecond
)

// leastOwn is what a window's own files take of its size at least.
func (c *Config) leastOwn() int64 {
	if !c.CountOwn {
		return 0
	}
	return ownAtLeast
}

// dirs is what directories count for.
func (w *Window) dirs(room int64) int64 {
	if !w.cfg.CountOwn {
		return 0
	}
	return room
}

// journalReserve is the size that the journal has on the disk from its beginning, and that
// it may have before it is written anew.
func (c *Config) journalReserve() int64 {
	if !c.CountOwn {
		return 0
	}
	return min(max(c.Size/256, 8<<10), 4<<20) / disk.Block * disk.Block
}

// journalMost is the size at which the journal is written anew.
func (w *Window) journalMost() int64 {
	if !w.cfg.CountOwn {
		return journalLimit
	}
	return max(w.cfg.journalReserve(), 2*w.journal.fresh)
}

// limitLocked is what items may take.
func (w *Window) limitLocked(now time.Time) int64 {
	if w.cfg.CountOwn && !now.Before(w.ownAt) {
		w.measureLocked()
		w.ownAt = now.Add(ownEvery)
	}
	return w.cfg.Size - w.ownMost
}

// measureLocked looks at the window's own files.
func (w *Window) measureLocked() {
	if !w.cfg.CountOwn {
		return
	}
	fixed, reports, err := w.stage.own()
	if err != nil {
		w.troubleLocked("look at the window's own files", err)
		return
	}
	var journal int64
	if info, err := w.journal.file.Stat(); err == nil {
		journal = taken(info)
	}
	w.own = fixed + reports + journal
	w.ownMost = max(ownAtLeast, fixed+max(reports, 16<<10)+2*max(journal, w.journalMost())+ownSpare)
	w.peak = max(w.peak, w.used+w.own)
}

// taken is what a file or directory takes, as the file system counts blocks.
func taken(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }

// own are the blocks of directories and records, and of reports.
func (s *localDir) own() (fixed, reports int64, err error) {
	add := func(sum *int64, name string) {
		if info, serr := s.Root().Lstat(name); serr == nil {
			*sum += taken(info)
		}
	}
	for _, name := range []string{".", disk.Private, disk.Private + "/LOCK", disk.Private + "/plan", cursorName, disk.Private + "/incoming", reportsDir} {
		add(&fixed, name)
	}
	for _, shelf := range []*disk.Subdir{s.ready, s.claimed, s.done, s.whole, s.held, s.doomed, s.leaving} {
		add(&fixed, shelf.Name())
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
	return fixed, reports, err
}
