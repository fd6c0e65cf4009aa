package checkpoint

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// The newest step is the one that was committed last, which after a rollback is not the one
// with the highest number. Of two steps:
//
//   - COMMITs of several nodes of one job have counters: the number of the view, and of the
//     save in it. They decide, and no clock does.
//   - Otherwise the higher number is the newer one, unless the time in the COMMIT.json of the
//     lower one is later, and so is the time that the store gave it. Both must agree, as
//     the clocks of two writers differ, and as a COMMIT.json that is replaced or copied gets
//     another time of the store. Where they do not, the time in it decides if it differs by more than
//     clocks do.

// skew is how far the clocks of two writers, or of a writer and of the store, may be apart.
const skew = 5 * time.Minute

// commitOrder is what the order of COMMITs depends on.
type commitOrder struct {
	step     int64
	suffix   int
	created  time.Time // in it: when the checkpoint was complete, as a backlog is sent newest first; else when it was written
	modified time.Time // by the store's clock
	group    *group.Joined
}

// after reports whether a was committed after b.
func (a *commitOrder) after(b *commitOrder) bool {
	if g, h := a.group, b.group; g != nil && h != nil && g.Job == h.Job && (g.Seq != h.Seq || g.Save != h.Save) {
		return cmp.Or(cmp.Compare(g.Seq, h.Seq), cmp.Compare(g.Save, h.Save)) > 0
	}
	if cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.suffix, b.suffix)) > 0 {
		return !b.after(a)
	}
	return a.created.After(b.created) && (a.modified.After(b.modified) || a.created.Sub(b.created) > skew)
}

// mayBeBefore reports whether a may have been committed before a step with a lower number, as
// far as the store's time of that one tells: a COMMIT.json is not created after it.
func (a *commitOrder) mayBeBefore(modified time.Time) bool {
	if a.modified.Sub(a.created) > skew { // replaced, or copied
		return modified.After(a.created)
	}
	return modified.After(a.modified)
}

// read reads the COMMIT.json of a step, once.
func (l *listed) read(ctx context.Context, store *backends.Store) (*Commit, error) {
	if l.commit == nil && l.commitErr == nil {
		commit, err := readCommit(ctx, store, l.dir)
		if err != nil {
			l.commitErr = err
		} else {
			l.commit = &commit
		}
	}
	return l.commit, l.commitErr
}

// order returns what the order of a step that was read depends on. One that is not good has
// the time of the store.
func (l *listed) order() *commitOrder {
	c := &commitOrder{step: l.step, suffix: l.suffix, created: l.modified, modified: l.modified}
	if l.commit != nil {
		c.created, c.group = l.commit.completed(), l.commit.Group
	}
	return c
}

// completed is when the checkpoint was complete, as far as the COMMIT says.
func (c *Commit) completed() time.Time {
	if c.Completed.IsZero() {
		return c.Created
	}
	return c.Completed
}

// newestFirst yields the committed ones of steps, which are in the order of their numbers,
// in the order of their COMMITs. It reads the COMMIT of each that it yields, and no other
// one unless the times of the listing disagree with the numbers. Its error is one of the
// store.
func newestFirst(ctx context.Context, store *backends.Store, steps []*listed) iter.Seq2[*listed, error] {
	return func(yield func(*listed, error) bool) {
		left := slices.DeleteFunc(slices.Clone(steps), func(l *listed) bool { return !l.committed })
		for len(left) > 0 {
			newest := 0
			for i, l := range left {
				best := left[newest]
				if i > 0 && !best.order().mayBeBefore(l.modified) {
					continue
				}
				if _, err := l.read(ctx, store); err != nil && !bad(err) {
					yield(l, err)
					return
				}
				if i > 0 && l.order().after(best.order()) {
					newest = i
				}
			}
			l := left[newest]
			if left = slices.Delete(left, newest, newest+1); !yield(l, nil) {
				return
			}
		}
	}
}

// sortByCommit puts steps that were read in the order of their COMMITs, newest first.
func sortByCommit[T any](steps []T, order func(T) *commitOrder) {
	for i := range steps { // they are nearly in order
		for k := i; k > 0 && order(steps[k]).after(order(steps[k-1])); k-- {
			steps[k], steps[k-1] = steps[k-1], steps[k]
		}
	}
}
