package checkpoint

import (
	"slices"
	"time"
)

// ownCommits is what this process has committed. Uploader.mu guards it: a step is always among the
// snapshots, or else here.
type ownCommits struct {
	dirs  []string            // oldest first
	last  *earlier            // the last COMMIT that this process wrote; nil: none, or several nodes
	ids   map[int64]string    // of the COMMITs that this process wrote, by step
	saved map[int64]time.Time // when each step was committed provisionally; zero: it is final
}

func newOwnCommits() ownCommits {
	return ownCommits{ids: make(map[int64]string), saved: make(map[int64]time.Time)}
}

// add adds the COMMIT of a step that was just made.
func (c *ownCommits) add(dir string, step int64, provisional bool) {
	c.dirs = append(c.dirs, dir)
	c.saved[step] = time.Time{}
	if provisional {
		c.saved[step] = time.Now()
	}
}

// isFinal records that the COMMIT of a step is final now.
func (c *ownCommits) isFinal(step int64) {
	if _, ok := c.saved[step]; ok {
		c.saved[step] = time.Time{}
	}
}

// newest returns the directories of the last n COMMITs, oldest first.
func (c *ownCommits) newest(n int) []string { return slices.Clone(c.dirs[max(0, len(c.dirs)-n):]) }
