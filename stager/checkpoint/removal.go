package checkpoint

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// An object of an upload may be removed when two conditions hold.
//
// First, nothing refers to it: neither a COMMIT nor the record of an upload, both read right
// before the removal.
//
// Second, the upload is finished. A COMMIT named it that this process removed or replaced; or
// this process sent it and nobody else resumes it; or nothing was added to it for so long that no
// writer can be alive. Ages use only the time stamps of the store: a local clock that is ahead
// must not make fresh data look old.

// finished holds the uploads whose COMMIT this process removed or replaced.
type finished struct {
	keys map[string]bool // also in the directories of other steps
	ids  map[string]bool
}

// finish records what a removed COMMIT of a step's directory named.
func (r *retention) finish(dir string, c *Commit) {
	if r.finished.keys == nil {
		r.finished = finished{make(map[string]bool), make(map[string]bool)}
	}
	for _, f := range c.Files {
		r.finished.keys[c.key(dir, f)] = true
	}
	for _, key := range c.partKeys(dir) {
		r.finished.keys[key] = true
	}
	for id := range c.uploads(dir) {
		r.finished.ids[id] = true
	}
}

// uploads returns the ids of the uploads in the step's own directory that a COMMIT names.
func (c *Commit) uploads(dir string) map[string]bool {
	ids := map[string]bool{c.id(): true}
	for _, f := range c.Files {
		if rest, ok := strings.CutPrefix(f.At, dir+"/"); ok {
			ids[uploadOf(rest)] = true
		}
	}
	return ids
}

// noteTimes advances the known lower bound of the store's clock from a listing. An object time
// that is ahead of the local clock is limited to the local clock.
func (r *retention) noteTimes(l *listed) {
	for _, obj := range l.objects {
		r.noteTime(obj.ModTime)
	}
	r.noteTime(l.modified)
}

func (r *retention) noteTime(t time.Time) {
	if now := time.Now(); t.After(now) {
		t = now
	}
	if t.After(r.now) {
		r.now = t
	}
}

// clockKey is an object that is written and removed to read the store's clock.
const clockKey = "stager-clock"

// askTime reads the store's clock from an object that it writes. Where writing is not allowed,
// the times in listings must suffice.
func (r *retention) askTime(ctx context.Context) error {
	if r.dry || r.abandoned == 0 {
		r.now = time.Now()
		return nil
	}
	_, err := r.store.PutBytes(ctx, clockKey, nil, backends.CreateOptions{})
	var obj backends.Object
	if err == nil {
		obj, err = r.store.Stat(ctx, clockKey)
		r.noteTime(obj.ModTime)
		err = errors.Join(err, r.store.Delete(ctx, clockKey))
	}
	if kind := backends.KindOf(err); err != nil && (kind == backends.Permission || kind == backends.NotExist) {
		r.log.Info("cannot read the clock of the store, so fewer uploads count as abandoned", "error", err)
		return nil
	}
	return err
}

// old reports whether nothing was added since last for so long that no writer can be alive.
func (r *retention) old(last time.Time) bool {
	if r.abandoned == 0 {
		return true
	}
	now := r.now
	if now.IsZero() {
		now = time.Now()
	}
	return !last.IsZero() && now.Sub(last) >= r.abandoned
}

// tooOld reports whether the objects of an upload are too old to resume it. A retention could
// treat it as abandoned before it is committed.
func tooOld(there map[string]backends.Object) bool {
	last := time.Time{}
	for _, obj := range there {
		if obj.ModTime.After(last) {
			last = obj.ModTime
		}
	}
	return !last.IsZero() && time.Since(last) > Abandoned/2
}

// name collects the keys that must stay whatever their age: those that COMMITs name, their parts,
// and those that uploads refer to which may still be committed.
func (r *retention) name(ctx context.Context, s *storeListing) error {
	for _, g := range s.good {
		g.commit.name(g.dir, s.named)
	}
	var view *group.View
	for _, l := range s.steps {
		var ids map[string]bool
		if c := s.says[l.dir]; c != nil {
			ids = c.uploads(l.dir)
		}
		for _, obj := range l.objects {
			rest := strings.TrimPrefix(obj.Key, l.dir+"/")
			id := uploadOf(rest)
			_, _, part := parsePartKey(rest)
			if save, _, ok := group.ParsePartKey(rest); ok {
				if view == nil {
					now, err := r.currentView(ctx)
					if err != nil {
						return err
					}
					view = &now
				}
				if err := r.namePart(ctx, s, *view, obj, l.dir, save); err != nil {
					return err
				}
				continue
			}
			switch {
			case strings.HasPrefix(rest, dataDir+"/") || id == "" && (!part || l.committed):
				continue
			case ids[id]:
				s.named[obj.Key] = true // the COMMIT itself names what it refers to
				continue
			case r.finished.ids[id] || r.finished.keys[obj.Key] || weaken.forgetRefs:
				continue
			}
			p, err := readPart(ctx, r.store, obj.Key)
			if kind := backends.KindOf(err); err != nil && (!bad(err) || kind == backends.NotExist || kind == backends.Changed) {
				return err
			}
			for _, f := range p.Files {
				if f.At != "" {
					s.named[f.At] = true
				}
			}
		}
	}
	return nil
}

// name adds the keys that a COMMIT names: its files and the parts of its nodes.
func (c *Commit) name(dir string, named map[string]bool) {
	for _, f := range c.Files {
		named[c.key(dir, f)] = true
	}
	for _, key := range c.partKeys(dir) {
		named[key] = true
	}
	for id := range c.uploads(dir) {
		named[dir+"/"+recordKey(id)] = true
	}
}

// partKeys returns the keys of the parts from which a COMMIT was made.
func (c *Commit) partKeys(dir string) (keys []string) {
	for node := range c.Nodes {
		key := dir + "/" + partKey(c.Attempt, node)
		if c.Group != nil {
			key = group.PartKey(c.Step, group.SaveID{View: c.Group.View, Number: c.Group.Save}, node)
		}
		keys = append(keys, key)
	}
	return keys
}

// currentView reads which members of a job save together now. The zero View means none.
func (r *retention) currentView(ctx context.Context) (group.View, error) {
	text, _, err := r.store.ReadAll(ctx, group.ViewKey, group.RecordLimit)
	if err != nil && backends.KindOf(err) != backends.NotExist {
		return group.View{}, err
	}
	view, err := group.DecodeView(text)
	if err != nil {
		return group.View{}, nil // then age decides
	}
	return view, nil
}

// namePart adds the keys to which a part refers, if its save is not committed but still may be.
func (r *retention) namePart(ctx context.Context, s *storeListing, view group.View, obj backends.Object, dir string, id group.SaveID) error {
	still := time.Duration(0)
	if r.old(obj.ModTime) {
		still = r.abandoned
	}
	if s.named[obj.Key] || r.finished.keys[obj.Key] || group.Sweepable(view, id.View, still, r.abandoned) {
		return nil
	}
	text, _, err := r.store.ReadAll(ctx, obj.Key, group.RecordLimit)
	if err != nil {
		return err
	}
	s.named[obj.Key] = true
	rec, err := group.DecodePart(text)
	if err != nil {
		return nil // keep what cannot be read
	}
	parts, err := payloads([]group.Part{rec})
	if err != nil {
		return nil
	}
	c := joinParts(dir, "", parts)
	for _, f := range c.Files {
		s.named[f.At] = true
	}
	return nil
}

// forgetGoing removes from s.named the keys that only steps to be removed refer to. Dry runs use
// it.
func (r *retention) forgetGoing(ctx context.Context, s *storeListing, going map[string]bool) error {
	stays := storeListing{steps: s.steps, named: make(map[string]bool), says: make(map[string]*Commit)}
	for _, g := range s.good {
		if !going[g.dir] {
			stays.good, stays.says[g.dir] = append(stays.good, g), s.says[g.dir]
		}
	}
	err := r.name(ctx, &stays)
	s.named = stays.named
	return err
}

// removable returns the objects of a step's directory that may be removed as far as listings
// show. With behind, it includes uploads that are abandoned and not committed.
func (r *retention) removable(s storeListing, dir string, objects []backends.Object, behind bool) (keys []backends.Object) {
	last := make(map[string]time.Time) // time of the last addition to an upload
	uploadKey := func(obj backends.Object) string {
		if id := uploadOf(strings.TrimPrefix(obj.Key, dir+"/")); id != "" {
			return id
		}
		return obj.Key
	}
	for _, obj := range objects {
		if g := uploadKey(obj); obj.ModTime.After(last[g]) {
			last[g] = obj.ModTime
		}
	}
	for _, obj := range objects {
		g := uploadKey(obj)
		over := r.finished.keys[obj.Key] || r.finished.ids[g] || behind && (r.ids[g] || r.old(last[g]))
		if over && !s.named[obj.Key] {
			keys = append(keys, obj)
		}
	}
	return keys
}

// sweep removes the objects of a step's directory that nobody needs. committed reports that its
// COMMIT was removed.
func (r *retention) sweep(ctx context.Context, s storeListing, l *listed, committed, older bool) error {
	if s.bad[l.dir] != nil {
		return nil // a COMMIT that cannot be read may name anything
	}
	objects := r.removable(s, l.dir, l.objects, older || l.committed)
	done := Pruned{Step: l.step, Dir: l.dir, Committed: committed}
	objects, err := r.stillRemovable(ctx, s, l.dir, objects)
	if err != nil {
		return err
	}
	var keys []string
	for _, obj := range objects {
		keys = append(keys, obj.Key)
		done.Objects++
		done.Bytes += obj.Size
	}
	if len(keys) == 0 && !committed {
		return nil // other steps still refer to the data
	}
	if !committed {
		r.log.Info(r.removing("data without a COMMIT", "swept"), "step", l.dir, "objects", done.Objects)
	}
	r.removed = append(r.removed, done)
	return r.remove(ctx, keys...)
}

// stillRemovable removes from objects those that the current COMMIT of the directory names.
func (r *retention) stillRemovable(ctx context.Context, s storeListing, dir string, objects []backends.Object) ([]backends.Object, error) {
	if len(objects) == 0 || r.dry {
		return objects, nil
	}
	now, err := r.store.Stat(ctx, dir+"/"+commitKey)
	if backends.KindOf(err) == backends.NotExist || err == nil && s.sees(dir, now.Version) {
		return objects, nil
	}
	if err != nil {
		return nil, err
	}
	commit, err := readCommit(ctx, r.store, dir)
	if backends.KindOf(err) == backends.NotExist {
		return objects, nil
	}
	if err != nil {
		return nil, err
	}
	named := make(map[string]bool)
	commit.name(dir, named)
	return slices.DeleteFunc(objects, func(obj backends.Object) bool { return named[obj.Key] }), nil
}

// sees reports whether the COMMIT was read in this version.
func (s storeListing) sees(dir string, version backends.Version) bool {
	i := slices.IndexFunc(s.steps, func(l *listed) bool { return l.dir == dir && l.committed })
	return i >= 0 && s.steps[i].version == version && s.says[dir] != nil
}

// tidy removes what other uploads left in the directory of a committed step. left must have been
// listed after the COMMIT.
func (r *retention) tidy(ctx context.Context, dir string, commit *Commit, left []backends.Object) error {
	own := make(map[string]bool)
	commit.name(dir, own)
	l := &listed{dir: dir, step: commit.Step, committed: true}
	for _, obj := range left {
		r.noteTime(obj.ModTime)
		if rest := strings.TrimPrefix(obj.Key, dir+"/"); belongs(rest) && rest != commitKey && !own[obj.Key] {
			l.objects = append(l.objects, obj)
		}
	}
	if weaken.tidyYoung {
		r.abandoned = 0
	}
	if len(r.removable(storeListing{}, dir, l.objects, true)) == 0 {
		return nil
	}
	s, err := r.list(ctx)
	if err != nil || s.later {
		return err
	}
	return r.sweep(ctx, s, l, false, true)
}

// drop removes an upload of this process that will not be committed.
func (r *retention) drop(ctx context.Context, dir, id string) error {
	s, err := r.list(ctx)
	if err != nil || s.later {
		return err
	}
	for _, l := range s.steps {
		if l.dir != dir {
			continue
		}
		only := *l
		only.objects = slices.DeleteFunc(slices.Clone(l.objects), func(obj backends.Object) bool {
			return uploadOf(strings.TrimPrefix(obj.Key, dir+"/")) != id
		})
		return r.sweep(ctx, s, &only, false, true)
	}
	return nil
}
