package checkpoint

import (
	"fmt"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// RefusedError reports that another job, which is alive, saves to the destination.
type RefusedError struct{ Job, Destination string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("job %q is alive and saves to %s; give each job a destination of its own, such as with {job} in its URL", e.Job, e.Destination)
}

// report forwards a report of the state machine to the log, the status, the metrics and waiting
// goroutines.
func (m *member) report(r group.Report) {
	u := m.u
	switch r.Topic {
	case group.Registered:
		m.setState(memberRegistered)
		u.log.Info("registered as a node of the job", "node", u.cfg.Node, "nodes", u.cfg.Nodes, "job", u.cfg.Job)
	case group.Refused:
		m.mu.Lock()
		m.refused = &RefusedError{r.Who, u.cfg.Store.Name()}
		m.mu.Unlock()
		m.setState(memberRefused)
		u.log.Error("another job saves to the destination", "error", m.refused)
	case group.Fenced:
		m.setState(memberFenced)
		m.giveUpAll("a newer pod has replaced this node")
		u.log.Warn("a newer pod has replaced this node: finishing open saves, starting no new ones", "node", u.cfg.Node)
	case group.Unreadable:
		m.unreadable(r)
	case group.Viewed:
		m.viewedNow(r.View)
	case group.Waiting:
		m.waiting(r)
	case group.Announced:
		u.log.Info("saving a checkpoint of all nodes", "step", r.Step, "save", r.Save.Number)
		m.begun(r.Save)
		m.clearMissing()
	case group.Skipped:
		m.skipped(r)
	case group.Committed, group.Superseded:
		m.clearMissing()
		m.safe(r)
	case group.Removed:
		m.clearMissing()
		m.removed(r)
	case group.Abandoned, group.Conflicted, group.Damaged:
		m.clearMissing()
		m.lost(r)
	}
}

func (m *member) setState(s memberState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	m.notifyLocked()
}

func (m *member) is(s memberState) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == s
}

// giveUpAll gives up everything that is held and not announced.
func (m *member) giveUpAll(why string) {
	u := m.u
	defer u.settle()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, snap := range u.snaps {
		if l := snap.local(m); snap.refused == nil && !m.isOpen(l) {
			u.giveUpLocked(snap, why, snap.Committed, true)
		}
	}
}

// isOpen reports whether a save of these files is announced and not finished.
func (m *member) isOpen(l group.Local) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.open, func(a group.Announcement) bool {
		return a.View == l.View && a.Round == l.Round && a.Step == l.Step && a.Writing == l.Writing
	})
}

// unreadable logs each unreadable record once.
func (m *member) unreadable(r group.Report) {
	m.mu.Lock()
	known := m.logged[r.Key]
	m.logged[r.Key] = true
	m.mu.Unlock()
	if !known {
		m.u.log.Warn("cannot read a record, leaving it unchanged", "key", r.Key, "reason", r.Why)
	}
}

// viewedNow reports everything held to the machine again, which drops what belongs to another
// view.
func (m *member) viewedNow(v group.View) {
	m.u.log.Info("all nodes of the job have registered", "nodes", v.Count, "view", v.Digest)
	m.clearMissing()
	m.mu.Lock()
	m.viewed = true
	m.mu.Unlock()
	u := m.u
	u.mu.Lock()
	for _, snap := range u.snaps {
		snap.reported = false
	}
	u.mu.Unlock()
	u.wakeSender()
}

func (m *member) waiting(r group.Report) {
	if r.Who != "" {
		m.setState(memberWatching)
		m.u.log.Warn("another job has registered at the destination, waiting to see whether it is alive", "job", r.Who, "node", m.u.cfg.Node)
		return
	}
	step := int64(-1)
	if r.Save.View != "" {
		step = r.Step
	}
	m.mu.Lock()
	since := time.Now()
	if m.missing.step == step && len(m.missing.nodes) > 0 {
		since = m.missing.since
	}
	m.missing = missing{step, r.Missing, since, r.Why}
	text := m.missing.String()
	m.mu.Unlock()
	m.u.cfg.Metrics.missing.WithLabelValues(m.u.cfg.Output).Set(float64(len(r.Missing)))
	m.u.log.Info("waiting for other nodes", "for", text)
}

func (m *member) clearMissing() {
	m.mu.Lock()
	m.missing = missing{}
	m.mu.Unlock()
	m.u.cfg.Metrics.missing.WithLabelValues(m.u.cfg.Output).Set(0)
}

// heldLocked returns the snapshot that a save consists of; nil if it no longer exists.
func (m *member) heldLocked(l group.Local) *snapshot {
	l.Sign, l.Edition = 0, 0
	if snap := m.u.snaps[l.Step]; snap != nil && snap.local(m) == l {
		return snap
	}
	return nil
}

// saveOf returns the identity of the files of a save.
func (m *member) saveOf(r group.Report) (l group.Local, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, list := range [][]group.Announcement{m.open, m.announced} {
		for _, a := range list {
			if a.View == r.Save.View && a.Save == r.Save.Number {
				return group.Local{View: a.View, Round: a.Round, Step: a.Step, Writing: a.Writing}, true
			}
		}
	}
	return group.Local{}, false
}

// skipped drops a checkpoint that will not be saved, because a later one was announced or the
// members have changed.
func (m *member) skipped(r group.Report) {
	u := m.u
	defer u.settle()
	u.mu.Lock()
	defer u.mu.Unlock()
	snap := m.heldLocked(r.Local)
	if snap == nil {
		return
	}
	if m.is(memberFenced) {
		r.Why = "a newer pod has replaced this node"
	}
	if r.Why != "" {
		u.giveUpLocked(snap, r.Why, snap.Committed, true)
		return
	}
	u.log.Info("all nodes save a later checkpoint, so this one is not uploaded", "step", snap.Step)
	u.rememberLocked(snap.Name, shipment{Step: snap.Step, Fingerprint: snap.print, Complete: snap.Complete})
	u.leaveLocked(snap)
}

// safe records that a save is committed. Unless it is provisional, it is safe.
func (m *member) safe(r group.Report) {
	u := m.u
	l, known := m.saveOf(r)
	dir := group.StepDir(r.Step, 0)
	u.log.Info(u.saveWord(r.Provisional), "step", r.Step, "directory", dir, "save", r.Save.Number)
	u.mu.Lock()
	u.own.add(dir, r.Step, r.Provisional)
	m.conclude(r.Save)
	delete(u.failed, unnamed(r.Step))
	u.results.committed = StepTime{Step: r.Step, Time: now(), Provisional: r.Provisional}
	if at := m.beganAt(r.Save); at.After(u.results.upTo) { // this node may have had no files of it
		u.results.upTo = at
	}
	if snap := m.heldLocked(l); known && snap != nil {
		if snap.Complete.After(u.results.upTo) {
			u.results.upTo = snap.Complete
		}
		u.results.committed.Evidence = snap.Evidence
		u.cfg.Metrics.countEvidence(u.cfg.Output, snap.Evidence)
		delete(u.failed, snap.Name)
		u.rememberLocked(snap.Name, shipment{Step: snap.Step, Fingerprint: snap.print, Dir: dir, Complete: snap.Complete, Provisional: r.Provisional, Sign: snap.sign()})
		u.cfg.Metrics.bytes.WithLabelValues(u.cfg.Output).Add(float64(totalSize(snap.Files)))
		u.leaveLocked(snap)
	}
	u.notifyLocked()
	u.mu.Unlock()
	u.settle()
	if u.cfg.Node == 0 {
		m.work.Go(func() { m.tidy(dir) })
	}
}

// conclude ends a save that is in Uploader.own from now on. follow would do so later, and until then
// the cleanup would spare the step as one that is being saved.
func (m *member) conclude(id group.SaveID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = slices.DeleteFunc(slices.Clone(m.open), func(a group.Announcement) bool { return a.View == id.View && a.Save == id.Number })
}

// removed drops a checkpoint that retention removed before this node saw its COMMIT.
func (m *member) removed(r group.Report) {
	u := m.u
	l, known := m.saveOf(r)
	u.log.Info("a later checkpoint is committed, and this one is no longer at the destination", "step", r.Step)
	defer u.settle()
	u.mu.Lock()
	defer u.mu.Unlock()
	if snap := m.heldLocked(l); known && snap != nil {
		u.rememberLocked(snap.Name, shipment{Step: snap.Step, Fingerprint: snap.print, Complete: snap.Complete})
		u.leaveLocked(snap)
	}
	u.notifyLocked()
}

// tidy writes the hint LATEST and applies retention. Node 0 does it for all nodes.
func (m *member) tidy(dir string) {
	u := m.u
	if _, err := u.cfg.Store.PutBytes(m.ctx, latestKey, []byte(dir+"\n"), backends.CreateOptions{}); err != nil {
		u.log.Warn("cannot write LATEST; restore does not need it", "error", err)
	}
	u.cleanLater(func(c *cleanup) { c.retain = true })
}
