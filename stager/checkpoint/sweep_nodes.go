package checkpoint

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/stager/records"
)

// Each view leaves announcements and agreements below nodes/, and a job that comes back
// with fewer nodes leaves members. Such records are removed when all of this holds:
//
//   - the record is one that a member of this version wrote: key and contents agree
//   - the current view can be read, and the record is of no member and no former view of it
//   - no step has a part of the view, committed or not, and every COMMIT can be read
//   - nothing was written to the view for the abandon time, by the store's clock
//
// The first two keep what live members read. The third keeps what a COMMIT names; and
// members that meet again in the same view begin with save 1, which must have no part.

// sweepNodesEvery is how often a daemon looks for such records.
const sweepNodesEvery = time.Hour

// mostSwept bounds how many are removed at a time.
const mostSwept = 1000

// sweepNodes removes records of former views and members. s is what the destination has.
func (r *retention) sweepNodes(ctx context.Context, s survey) error {
	if len(s.bad) > 0 || s.later {
		return nil
	}
	view, err := r.currentView(ctx)
	if err != nil || view.Digest == "" {
		return err
	}
	candidates, err := r.oldRecords(ctx, view, s.views())
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
	// A view that came back meanwhile needs its records.
	if now, err := r.currentView(ctx); err != nil || now.Digest != view.Digest || len(keys) == 0 {
		return err
	}
	r.log.Info(r.removing("what former nodes of the job left", "swept"), "objects", done.Objects)
	r.removed = append(r.removed, done)
	return r.remove(ctx, keys...)
}

// views are those of which a step has a part, or a COMMIT.
func (s *survey) views() map[string]bool {
	views := make(map[string]bool)
	for _, l := range s.steps {
		for _, obj := range l.objects {
			if save, _, ok := group.ParsePartKey(strings.TrimPrefix(obj.Key, l.dir+"/")); ok {
				views[save.View] = true
			}
		}
		if c := s.says[l.dir]; c != nil && c.Group != nil {
			views[c.Group.View] = true
		}
	}
	return views
}

// oldRecords lists the records that nobody needs: of views that are neither needed by the
// current one nor named, and of members at no index of it.
func (r *retention) oldRecords(ctx context.Context, view group.View, named map[string]bool) (old []backends.Object, err error) {
	last := make(map[string]time.Time) // when something was written to a view
	for obj, err := range r.store.List(ctx, group.RecordsPrefix) {
		if backends.KindOf(err) == backends.NotExist {
			break
		}
		if err != nil {
			return nil, err
		}
		r.noteTime(obj.ModTime)
		k, ok := group.ParseRecordKey(obj.Key)
		if !ok || view.Needs(k) || named[k.View] {
			continue
		}
		if k.View != "" && obj.ModTime.After(last[k.View]) {
			last[k.View] = obj.ModTime
		}
		old = append(old, obj)
	}
	return slices.DeleteFunc(old, func(obj backends.Object) bool {
		k, _ := group.ParseRecordKey(obj.Key)
		at := obj.ModTime
		if k.View != "" {
			at = last[k.View]
		}
		return !r.old(at)
	}), nil
}
