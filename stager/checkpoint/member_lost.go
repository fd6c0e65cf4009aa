package checkpoint

import (
	"fmt"
	"maps"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// This file handles saves that will not be committed. When the members of a job change, open
// saves are abandoned. They are reported in the log and the status. If one of them is newer than
// the last committed step, the job's last state is lost. Only then does the run end with an
// error.

// begun records when a save was announced.
func (m *member) begun(id group.SaveID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.began, func(o group.SaveID, _ time.Time) bool { return o.View == id.View && o.Number < id.Number-1 })
	m.began[id] = now()
}

// beganAt returns when a save was announced; zero: before this process started.
func (m *member) beganAt(id group.SaveID) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.began[id]
}

// lost records that a save will not be committed.
func (m *member) lost(r group.Report) {
	u := m.u
	l, known := m.saveOf(r)
	u.cfg.Metrics.abandoned.WithLabelValues(u.cfg.Output).Inc()
	var abandoned time.Time
	if r.Topic == group.Abandoned {
		if abandoned = m.beganAt(r.Save); abandoned.IsZero() {
			abandoned = now()
		}
	}
	defer u.settle()
	u.mu.Lock()
	defer u.mu.Unlock()
	if snap := m.heldLocked(l); known && snap != nil {
		u.giveUpLocked(snap, r.Why, snap.Committed || r.Topic == group.Damaged, r.Topic == group.Abandoned)
		return
	}
	u.log.Error("a checkpoint of all nodes is abandoned", "step", r.Step, "reason", r.Why)
	for name, f := range u.failed {
		if f.step == r.Step && name != unnamed(r.Step) {
			return // it is reported already
		}
	}
	u.failed[unnamed(r.Step)] = failure{step: r.Step, reason: r.Why, kind: backends.Changed, abandoned: abandoned}
	u.notifyLocked()
}

// unnamed returns a name for a step of which this node has no files.
func unnamed(step int64) string { return fmt.Sprintf("step %d", step) }

// giveUpLocked reports a checkpoint that will not be saved. hold keeps it on the volume, because
// the trainer that committed it may have removed its own copy. abandoned means that a later
// checkpoint can replace it.
func (u *Uploader) giveUpLocked(snap *snapshot, why string, hold, abandoned bool) {
	u.log.Error("a checkpoint is abandoned", "step", snap.Step, "reason", why)
	err := backends.Errorf(backends.Changed, "commit", stepDir(snap.Step, 0), "%s", why)
	at := time.Time{}
	if abandoned {
		at = snap.Complete
	}
	if hold {
		u.log.Warn("the checkpoint is held on this node until stager is restarted", "step", snap.Step, "directory", u.cfg.Dir+"/"+u.snapshots.dir(snap))
		snap.refused, snap.abandoned = err, at
		u.notifyLocked()
		return
	}
	u.failed[snap.Name] = failure{step: snap.Step, print: snap.print, reason: why, kind: backends.Changed, abandoned: at}
	u.leaveLocked(snap)
}

// overtakenLocked reports whether an abandoned checkpoint is older than the last committed one,
// and logs it. Such a checkpoint is no longer needed, so the run does not end with an error.
// abandoned is when it was complete; zero: it was not abandoned.
func (u *Uploader) overtakenLocked(step int64, abandoned time.Time) bool {
	if abandoned.IsZero() || !abandoned.Before(u.results.upTo) {
		return false
	}
	u.log.Warn("a checkpoint was abandoned, and a newer one is saved", "step", step, "saved", u.results.committed.Step)
	return true
}
