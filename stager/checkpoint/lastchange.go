package checkpoint

import (
	"cmp"
	"io/fs"
	"maps"
	"slices"
	"time"
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
