package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// now returns the current time as records store it, in UTC.
func now() time.Time { return time.Now().UTC() }

// scan is a search for this node's files of a save, after the save was announced.
type scan struct {
	save  group.Announcement
	job   bool      // the announcement says that every node's files are complete
	began time.Time // by the clock of the volume; files written later do not belong to the save
	fresh bool      // the snapshot was taken or compared after the scan began
	early bool      // the snapshot was linked before the trainer removed the files
}

// scanPause is the initial interval between two tries of a scan.
const scanPause = 250 * time.Millisecond

// scan searches for this node's files of an announced save until they are closed and unchanged,
// and holds them.
func (m *member) scan(ctx context.Context, save group.Announcement) group.Event {
	began, err := m.u.stamp()
	if err != nil {
		began = time.Now()
	}
	s := &scan{save: save, job: save.Scope == group.ScopeJob, began: began}
	m.mu.Lock()
	m.scans[save.Step] = s
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.scans[save.Step] == s {
			delete(m.scans, save.Step)
		}
	}()
	for wait := scanPause; ; wait = min(2*wait, longestPause) {
		if e, err := m.scanOnce(s); err != nil {
			_ = m.u.note(err)
		} else if e.Outcome != 0 {
			return e
		}
		if pause(ctx, wait) != nil {
			return group.Event{Outcome: group.Unavailable}
		}
	}
}

// scanOnce scans the directory, and returns the result before another scan begins: in the middle of one,
// a checkpoint may be neither seen nor held.
func (m *member) scanOnce(s *scan) (group.Event, error) {
	m.u.directory.Lock()
	defer m.u.directory.Unlock()
	if err := m.u.scanDirectory(false); err != nil {
		return group.Event{}, err
	}
	return m.scanned(s), nil
}

// scanned returns the result of a scan. An event without an Outcome means that there is none yet.
// If the trainer has removed files, it is not certain that all were held. They make the save
// provisional, unless completion evidence on this node covers them.
func (m *member) scanned(s *scan) group.Event {
	u, step := m.u, s.save.Step
	u.mu.Lock()
	looked := u.snaps[step]
	u.mu.Unlock()
	gone := looked != nil && !present(u.root, looked.Name)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.snaps[step] != looked { // an upload ended meanwhile, or one was lost
		return group.Event{}
	}
	lost := func(format string, args ...any) group.Event {
		return group.Event{Outcome: group.Changed, Why: fmt.Sprintf(format, args...)}
	}
	if count := m.writingOf(s.save); count > s.save.Writing {
		return lost("has writing %d of step %d, and writing %d was announced", count, step, s.save.Writing)
	}
	snap := u.snaps[step]
	if snap != nil && snap.refused == nil && s.fresh {
		switch {
		case !m.roundedLocked(snap):
			return group.Event{}
		case !m.belongsLocked(snap, s.save):
			return lost("has files of step %d from before the members changed or restored", step)
		case snap.Writing > s.save.Writing: // no sign completes it so far
			return lost("has files of writing %d of step %d, and writing %d was announced", snap.Writing, step, s.save.Writing)
		case snap.Sign >= group.SignOwn && snap.Writing < s.save.Writing && !s.job:
			return lost("has writing %d of step %d only, and writing %d was announced", snap.Writing, step, s.save.Writing)
		}
		m.adopt(snap, s)
		return group.Event{Outcome: group.OK, Provisional: snap.Provisional}
	}
	for _, e := range u.seen {
		switch {
		case e.step != step:
			continue
		case !m.sees(e, s.save):
			return lost("has files of step %d from before the members changed or restored", step)
		case e.late != "":
			return lost("wrote %s after step %d was announced as complete", e.late, step)
		}
		return group.Event{}
	}
	switch {
	case snap != nil && snap.Sign >= group.SignOwn: // the trainer has removed it since
		m.adopt(snap, s)
		return group.Event{Outcome: group.OK, Provisional: snap.Provisional}
	case snap != nil && snap.refused == nil && m.belongsLocked(snap, s.save) && gone:
		s.early = true
		m.adopt(snap, s)
		return group.Event{Outcome: group.OK, Provisional: snap.Provisional}
	case snap != nil, m.hasSeen(step):
		return lost("no longer has the files of step %d", step)
	}
	return group.Event{Outcome: group.NotExist}
}

// adopt assigns a snapshot to an announced save. An announcement for all nodes proves which
// writing it is, unless the trainer has removed it since.
func (m *member) adopt(snap *snapshot, s *scan) {
	snap.Writing, snap.Edition, snap.reported = s.save.Writing, s.save.Edition, true
	if s.job && !s.early {
		m.noteWriting(snap.local(m), snap.print, snap.Files)
		if snap.Provisional {
			snap.Evidence, snap.Provisional = s.evidence(), false
		}
	}
	m.u.snapshots.rewrite(snap)
}

// belongsLocked reports whether a snapshot has the view and round of a save.
func (m *member) belongsLocked(snap *snapshot, save group.Announcement) bool {
	return m.roundedLocked(snap) && m.resolve(snap.View) == save.View && snap.Round == save.Round
}

// sees reports whether files have the view and round of a save, or may have them: their round may
// not be read yet.
func (m *member) sees(e *entry, save group.Announcement) bool {
	round, later := m.rounds.of(e.step)
	return m.resolve(e.view) == save.View && (round == save.Round || later != nil)
}

// upload sends the snapshot for a save, and returns the payload of this node's part.
func (m *member) upload(ctx context.Context, save group.Announcement) group.Event {
	u := m.u
	select {
	case u.shipping <- struct{}{}:
	case <-ctx.Done():
		return group.Event{Outcome: group.Unavailable}
	}
	defer func() { <-u.shipping }()
	local := group.Local{View: save.View, Round: save.Round, Step: save.Step, Writing: save.Writing}
	u.mu.Lock()
	snap := u.snaps[save.Step]
	if snap == nil { // it was given up with an earlier save of the same files
		u.mu.Unlock()
		if e := m.scan(ctx, save); e.Outcome == group.Unavailable {
			return e
		}
		u.mu.Lock()
		snap = u.snaps[save.Step]
	}
	if snap == nil || snap.local(m) != local {
		u.mu.Unlock()
		return group.Event{Outcome: group.Changed}
	}
	up := &upload{snap: snap, total: totalSize(snap.Files), start: time.Now(), cancel: func() {}}
	u.sending.begin(up)
	u.mu.Unlock()
	p, err := m.deliverSnapshot(ctx, up, group.StepDir(save.Step, 0))
	p.Restored = save.Round
	u.mu.Lock()
	u.sending.end()
	u.notifyLocked()
	u.mu.Unlock()
	if err == nil {
		var text []byte
		if text, err = json.Marshal(p); err == nil {
			m.noteBrought(local, snap.print)
			u.keepPace(up.pace())
			return group.Event{Outcome: group.OK, Body: text}
		}
	}
	return m.uploadFailed(snap, err)
}

func (m *member) uploadFailed(snap *snapshot, err error) group.Event {
	u := m.u
	if backends.KindOf(err) == backends.Canceled {
		return group.Event{Outcome: group.Unavailable}
	}
	u.cfg.Metrics.failures.WithLabelValues(u.cfg.Output).Inc()
	if errors.Is(err, errChanged) || errors.As(err, new(*unholdableError)) {
		u.log.Warn("cannot save the files of this node in their current state", "step", snap.Step, "error", err)
		return group.Event{Outcome: group.Changed}
	}
	u.log.Warn("a checkpoint is not safe yet", "step", snap.Step, "error", err)
	_ = u.note(err)
	return group.Event{Outcome: group.Unavailable}
}

// deliverSnapshot sends the files of a snapshot to a step's directory.
func (m *member) deliverSnapshot(ctx context.Context, up *upload, dir string) (part, error) {
	u, snap := m.u, up.snap
	t, err := u.snapshots.open(snap)
	if err != nil {
		return part{}, errors.Join(changed(snap.Name), err)
	}
	defer t.close()
	sent := u.snapshots.journal(snap)
	defer sent.close()
	if err := u.cfg.Store.CheckKeys(pathsOf(snap.held())); err != nil {
		return part{}, &unholdableError{err}
	}
	s := &shipper{
		store: u.cfg.Store, stager: u.cfg.Stager, log: u.log, moved: func(n int64) { up.done.Add(n) }, reused: func(n int64) { up.reused.Add(n) }, node: u.cfg.Node, nodes: u.cfg.Nodes,
		recall: m.recall,
	}
	return s.deliver(ctx, uploadJob{
		id: snap.ID, step: snap.Step, samples: snap.Samples, metrics: snap.Metrics, cursors: u.cursorsOf(up), tree: t, files: snap.held(), sent: sent,
		because: snap.Evidence, quiet: snap.Provisional, completed: snap.Complete,
		idle: u.givesWay,
	}, dir)
}

// local returns the machine's identity of a snapshot, without edition and sign.
func (snap *snapshot) local(m *member) group.Local {
	return group.Local{View: m.resolve(snap.View), Round: snap.Round, Step: snap.Step, Writing: snap.Writing}
}

// sign returns what is known of the files of a snapshot.
func (snap *snapshot) sign() group.Sign {
	if snap.Committed {
		return max(snap.Sign, group.SignOwn)
	}
	return snap.Sign
}

// reportDue reports complete checkpoints that are due to the machine, oldest first. With all,
// every one is due. The machine takes the order of reports for that of writing. So while the round
// of one is being read, later ones wait; and each waits until a scan has ended that began after it
// was found, because one listing may show a later checkpoint without an earlier one.
func (m *member) reportDue(all bool) {
	if m.is(memberFenced) {
		m.giveUpAll("a newer pod has replaced this node")
		return
	}
	u := m.u
	u.mu.Lock()
	defer u.mu.Unlock()
	m.mu.Lock()
	ready := len(m.home.Positions) > 0 && m.viewed
	m.mu.Unlock()
	if !ready {
		return
	}
	steps := u.pendingLocked()
	after := slices.IndexFunc(steps, func(step int64) bool { return u.snaps[step].found < u.listings.ended })
	for i := len(steps) - 1; i >= 0 && after >= 0 && i >= after; i-- {
		snap := u.snaps[steps[i]]
		if snap.reported || !all && !snap.Committed {
			continue
		}
		if !m.roundedLocked(snap) {
			return
		}
		snap.reported = true
		l := snap.local(m)
		l.Edition, l.Sign = max(snap.Edition, 1), snap.sign()
		m.post(group.Event{What: group.Complete, Local: l})
	}
}

// relistLocked reports whether a checkpoint waits for another scan before it is reported to the
// other nodes.
func (u *Uploader) relistLocked() bool {
	if u.member == nil {
		return false
	}
	for _, snap := range u.snaps {
		if !snap.reported && snap.refused == nil && snap.found >= u.listings.ended {
			return true
		}
	}
	return false
}
