package checkpoint

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends/sys"
)

// A checkpoint counts as complete from the moment at which its files last changed, because the
// newest of two is the one that was written last. The moment at which stager finds it complete
// can be much later: it was not running, or a file could not be read for a while.

// lastChange returns when files reached a state that is first seen now, and that the previous
// scan did not see. The newest modification time tells it, unless the program set this time.
func lastChange(files []local, before, now time.Time) time.Time {
	newest := time.Time{}
	for _, f := range files {
		if at := time.Unix(0, f.MTime); at.After(newest) {
			newest = at
		}
	}
	switch {
	case newest.Before(before):
		return before
	case newest.After(now):
		return now
	}
	return newest
}

// completeAt returns when the marker was written, and without a marker when the files last
// changed. This is not when stager found the checkpoint complete: it may find an older one later.
func (e *entry) completeAt(marker fs.FileInfo) time.Time {
	if now := time.Now(); marker != nil && !changeTime(marker).After(now) {
		return changeTime(marker).UTC()
	}
	return e.changed.UTC()
}

// bySteps returns the names of checkpoints in the order of their steps. Of those that one scan
// finds complete, the last one counts as the newest.
func bySteps(names map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(names[a], names[b]), cmp.Compare(a, b))
	})
}

// One listing of a directory may show a checkpoint that the trainer wrote while the listing ran, and
// not show one that it wrote before. The next listing shows both. So of what two successive scans
// find, the times of the files decide which was written last, and not which was found last.

// found is a checkpoint that a scan found complete.
type found struct {
	scan              int64
	step              int64
	written, complete time.Time
}

// listings is what successive scans listed and found. Uploader.mu guards it, and only a scan
// changes begun and all that follows it.
type listings struct {
	recent    []found         // checkpoints of the current scan and the one before
	begun     int64           // scans that have begun
	ended     int64           // the last of them that has ended
	last      time.Time       // when the last one began that has listed all checkpoints; zero: none did
	temporary map[uint64]bool // inodes that had temporary names then
}

// place records that a snapshot was found now. If it was written before another one that this
// scan or the previous one has found, it was complete before, too.
func (l *listings) place(snap *snapshot) {
	snap.found = l.begun
	l.recent = slices.DeleteFunc(l.recent, func(f found) bool { return f.scan < l.begun-1 || f.step == snap.Step })
	if snap.written.IsZero() {
		return
	}
	for _, f := range l.recent {
		before := cmp.Or(snap.written.Compare(f.written), cmp.Compare(snap.Step, f.step)) < 0
		if before && !snap.Committed && !snap.Complete.Before(f.complete) {
			snap.Complete = f.complete.Add(-1)
		}
	}
	l.recent = append(l.recent, found{l.begun, snap.Step, snap.written, snap.Complete})
}

// writtenAt returns when the newest of files was written, by the clock of their volume, or copied
// with its times.
func writtenAt(root *os.Root, files []local) (at time.Time) {
	if len(files) == 0 {
		return at
	}
	last := slices.MaxFunc(files, func(a, b local) int { return cmp.Compare(a.MTime, b.MTime) })
	at = last.modified()
	if born, ok := sys.Born(root, last.Path); ok && born.After(at) {
		at = born
	}
	return at
}
