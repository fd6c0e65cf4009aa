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

// The newest step is the one that was complete last. After a rollback this is not the step with
// the highest number. It need not be the step that was committed last either: a backlog is sent
// newest first, and an old checkpoint may be pushed by hand. Two steps are compared as follows:
//
//   - COMMITs of several nodes of one job have counters: the number of the view, and of the
//     save in it. The counters decide, without any clock.
//   - Otherwise the higher number is newer, unless the lower one was complete later by two
//     clocks, that of its writer and that of the store. Both must agree: the clocks of two
//     writers differ, and a COMMIT.json that is replaced or copied gets a new time in the
//     store. If they disagree, the writer's clock decides when the difference exceeds skew. It
//     also decides between COMMITs that the store dates to the same second, or to two
//     successive ones, if the store counts whole seconds.
//
// The store records when COMMIT.json was written. COMMIT.json records, by one clock, when it was
// written and when the checkpoint was complete. The difference is therefore valid for any clock.

// skew is the maximum assumed difference between the clocks of two writers, or of a writer and
// the store.
const skew = 5 * time.Minute

// commitOrder holds the data that determines the order of COMMITs.
type commitOrder struct {
	step     int64
	suffix   int
	complete time.Time // when the checkpoint was complete, by the writer's clock; zero: at created
	created  time.Time // when COMMIT.json was created, by the same clock
	modified time.Time // when COMMIT.json was written, by the store's clock
	group    *group.Joined
}

// byWriter returns when the checkpoint was complete, by the clock of its writer.
func (a *commitOrder) byWriter() time.Time {
	if a.complete.IsZero() || a.complete.After(a.created) {
		return a.created
	}
	return a.complete
}

// byStore returns when the checkpoint was complete, by the clock of the store. The result is too
// late for a COMMIT.json that was replaced or copied.
func (a *commitOrder) byStore() time.Time { return a.modified.Add(a.byWriter().Sub(a.created)) }

// after reports whether a is newer than b.
func (a *commitOrder) after(b *commitOrder) bool {
	if g, h := a.group, b.group; g != nil && h != nil && g.Job == h.Job && (g.Seq != h.Seq || g.Save != h.Save) {
		return cmp.Or(cmp.Compare(g.Seq, h.Seq), cmp.Compare(g.Save, h.Save)) > 0
	}
	if cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.suffix, b.suffix)) > 0 {
		return !b.after(a)
	}
	at, other := a.byWriter(), b.byWriter()
	same := resolution(a.modified, b.modified)
	return at.After(other) && (a.byStore().After(b.byStore().Add(-same)) || at.Sub(other) > skew)
}

// resolution returns by how much the difference of two times of a store can be wrong. S3 and OSS
// date objects in whole seconds.
func resolution(a, b time.Time) time.Duration {
	if a.Nanosecond() == 0 && b.Nanosecond() == 0 {
		return time.Second
	}
	return 0
}

// mayBeBefore reports whether a may be older than a step with a lower number whose COMMIT.json
// the store wrote at modified. That checkpoint was not complete after this time.
func (a *commitOrder) mayBeBefore(modified time.Time) bool {
	same := resolution(a.modified, modified)
	if a.modified.Sub(a.created) > skew { // replaced or copied
		return modified.After(a.byWriter().Add(-same))
	}
	return modified.After(a.byStore().Add(-same))
}

// read reads the COMMIT.json of a step once and caches the result.
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

// order returns the order data of a step that was read. An invalid COMMIT uses the time of the
// store.
func (l *listed) order() *commitOrder {
	if l.commit == nil {
		return &commitOrder{step: l.step, suffix: l.suffix, created: l.modified, modified: l.modified}
	}
	return l.commit.order(l.step, l.suffix, l.modified)
}

func (c *Commit) order(step int64, suffix int, modified time.Time) *commitOrder {
	return &commitOrder{step: step, suffix: suffix, complete: c.Completed, created: c.Created, modified: modified, group: c.Group}
}

// newestFirst yields the committed steps, newest first. The steps must be sorted by number. It
// reads the COMMIT of each step that it yields. It reads others only if the times of the listing
// disagree with the numbers. An error is one of the store.
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

// sortByCommit sorts steps that were read, newest first.
func sortByCommit[T any](steps []T, order func(T) *commitOrder) {
	for i := range steps { // insertion sort: they are almost sorted
		for k := i; k > 0 && order(steps[k]).after(order(steps[k-1])); k-- {
			steps[k], steps[k-1] = steps[k-1], steps[k]
		}
	}
}
