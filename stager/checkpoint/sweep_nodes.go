package checkpoint

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/stager/internal/records"
)

// Each view leaves announcements below nodes/, and each job leaves records of what its nodes
// restored. A job that returns with fewer nodes leaves members. A record is removed when all of
// these hold:
//
//   - A member of this version wrote the record: key and contents agree.
//   - The current view can be read, and the record belongs to none of its members, former
//     views or job. If there is no view, because a single node saves, nodes may still agree on
//     what they restore. Then only records of such agreements are removed.
//   - No step has a part of the view, committed or not, or a COMMIT of the job, and every
//     COMMIT can be read.
//   - Nothing was written to the view, or by restoring nodes of the job, for the abandon
//     time by the store's clock.
//
// The first two rules keep what live members read. The third keeps what a COMMIT names. Members
// that meet again in the same view also start with save 1, which must have no part. For a job
// whose records stay, the last agreements stay, because only the very last is valid. A job that
// restores while its records are swept keeps those that it reads: only records that two listings
// find old are removed.

// sweepNodesEvery is how often a daemon sweeps such records.
const sweepNodesEvery = time.Hour

// keptAgreements is the number of agreements of a job that are kept, for diagnosis.
const keptAgreements = 16

// mostSwept is the maximum number of records removed at a time.
const mostSwept = 1000

// sweepNodes removes records of former views and members. s is the listing of the destination.
func (r *retention) sweepNodes(ctx context.Context, s storeListing) error {
	if len(s.bad) > 0 || s.later {
		return nil
	}
	view, err := r.currentView(ctx)
	if err != nil {
		return err
	}
	candidates, err := r.oldRecords(ctx, view, s.inUse())
	if err != nil || len(candidates) == 0 {
		return err
	}
	done := Pruned{Step: -1, Dir: strings.TrimSuffix(group.RecordsPrefix, "/")}
	var keys []string
	for _, obj := range candidates[:min(len(candidates), mostSwept)] {
		k, _ := group.ParseRecordKey(obj.Key)
		body, version, err := records.ReadListed(ctx, r.store, obj, group.RecordLimit)
		switch {
		case err != nil && !bad(err):
			return err
		case err != nil, version != obj.Version, k.Check(body) != nil:
			continue
		}
		keys = append(keys, obj.Key)
		done.Objects++
		done.Bytes += obj.Size
	}
	if len(keys) == 0 {
		return nil
	}
	// A view that returned meanwhile needs its records, and so does a restoring job.
	if now, err := r.currentView(ctx); err != nil || now.Digest != view.Digest {
		return err
	}
	still, err := r.oldRecords(ctx, view, s.inUse())
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return !slices.ContainsFunc(still, func(obj backends.Object) bool { return obj.Key == key })
	})
	r.log.Info(r.removing("what former nodes of the job left", "swept"), "objects", done.Objects)
	r.removed = append(r.removed, done)
	return r.remove(ctx, keys...)
}

// inUse returns the views of which a step has a part, and the views and jobs with a COMMIT.
func (s *storeListing) inUse() map[string]bool {
	used := make(map[string]bool)
	for _, l := range s.steps {
		for _, obj := range l.objects {
			if save, _, ok := group.ParsePartKey(strings.TrimPrefix(obj.Key, l.dir+"/")); ok {
				used[save.View] = true
			}
		}
		if c := s.says[l.dir]; c != nil && c.Group != nil {
			view, job := c.Group.Of()
			used[view], used[job] = true, true
		}
	}
	return used
}

// oldRecords lists the records that nobody needs: those of views and jobs that are unused and
// that the current view does not need, those of members at no index of the view, and superseded
// agreements.
func (r *retention) oldRecords(ctx context.Context, view group.View, used map[string]bool) (old []backends.Object, err error) {
	last := make(map[string]time.Time)               // last write to a view or for a job
	agreements := make(map[string][]backends.Object) // by job
	for obj, err := range r.store.List(ctx, group.RecordsPrefix) {
		if backends.KindOf(err) == backends.NotExist {
			break
		}
		if err != nil {
			return nil, err
		}
		r.noteTime(obj.ModTime)
		if view.Digest == "" && obj.Key == group.ViewKey { // the view cannot be read
			return nil, nil
		}
		k, ok := group.ParseRecordKey(obj.Key)
		if !ok || view.Digest == "" && k.Job == "" {
			continue
		}
		if k.IsAgreement() {
			agreements[k.Job] = append(agreements[k.Job], obj)
		}
		if view.Needs(k) || used[k.Of()] {
			continue
		}
		if of := k.Of(); of != "" && obj.ModTime.After(last[of]) {
			last[of] = obj.ModTime
		}
		old = append(old, obj)
	}
	old = slices.DeleteFunc(old, func(obj backends.Object) bool {
		k, _ := group.ParseRecordKey(obj.Key)
		at := last[k.Of()]
		if obj.ModTime.After(at) {
			at = obj.ModTime
		}
		return !r.old(at)
	})
	listed := make(map[string]bool, len(old))
	for _, obj := range old {
		listed[obj.Key] = true
	}
	for _, all := range agreements {
		slices.SortFunc(all, func(a, b backends.Object) int { return strings.Compare(a.Key, b.Key) })
		for _, obj := range all[:max(0, len(all)-keptAgreements)] {
			if !listed[obj.Key] && r.old(obj.ModTime) {
				old = append(old, obj)
			}
		}
	}
	return old, nil
}
