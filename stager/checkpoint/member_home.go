package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/window/disk"
)

// home is the state that a member stores on its volume, so that a restarted process is the same
// member. It holds the boot ID, and since when the member was in which view. A pod with
// its own volume starts with a new home. Times are those of the volume's file system.
type home struct {
	Boot      string     `json:"boot"`
	Pod       string     `json:"pod,omitempty"`   // the run of the pod that the boot ID belongs to
	Nodes     int        `json:"nodes,omitempty"` // of the job, when the boot ID was made
	Since     time.Time  `json:"since"`
	Positions []position `json:"positions,omitempty"` // oldest first
	Seen      []int64    `json:"seen,omitempty"`      // steps of which this node has had files
	Restores  int        `json:"restores,omitempty"`  // the last restore agreement that was seen
	Restarts  []restart  `json:"restarts,omitempty"`  // by agreement

	Writings group.Writings `json:"writings,omitempty"`
}

type position struct {
	View  string    `json:"view"`
	Since time.Time `json:"since"`
}

const (
	homeName  = private + "/member"
	stampName = private + "/stamp"
	// maxPositions and maxSeen bound a home.
	maxPositions = 32
	maxSeen      = 64
	// beforeRun is the view of files that are older than this run of the pod.
	beforeRun = "-"
)

// last returns the current view.
func (h *home) last() string {
	if len(h.Positions) == 0 {
		return ""
	}
	return h.Positions[len(h.Positions)-1].View
}

// view returns the current view of this member.
func (m *member) view() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.home.last()
}

// readHome reads the home of this member, or makes a new one.
func (m *member) readHome() error {
	h, fresh, err := m.u.readHome(func(h home) bool { return h.Pod == m.u.cfg.Pod && (h.Nodes == m.count || h.Nodes == 0) })
	m.home = h
	if err == nil && fresh {
		m.u.disown(func(view string) bool { return view == "" })
	}
	return err
}

// readHome reads the home on the volume. It makes a new one if there is none, or if own rejects
// the one there. fresh reports that a new one replaced another.
func (u *Uploader) readHome(own func(home) bool) (h home, fresh bool, err error) {
	text, err := disk.ReadSmall(u.root, homeName, disk.Limit)
	var odd *disk.NotRegularError
	switch {
	case err == nil && json.Unmarshal(text, &h) == nil && h.Boot != "" && own(h):
		return h, false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &odd):
		return h, false, err
	}
	since := time.Time{} // everything on a new volume belongs to this run, even what is older than stager
	if fresh = err == nil; fresh {
		if since, err = u.stamp(); err != nil {
			return h, fresh, err
		}
	}
	h = home{Boot: disk.Unique(), Pod: u.cfg.Pod, Nodes: max(u.cfg.Nodes, 1), Since: since}
	return h, fresh, u.writeHome(h)
}

// disown marks what is held under some views as older than this run. It then never becomes
// part of a save of this run.
func (u *Uploader) disown(former func(view string) bool) {
	u.disownEarly(former)
	u.mu.Lock()
	var marked []*snapshot
	for _, snap := range u.snaps {
		if former(snap.View) {
			snap.View = beforeRun
			marked = append(marked, snap)
		}
	}
	u.mu.Unlock()
	for _, snap := range marked {
		u.snapshots.rewrite(snap)
	}
}

// startAlone prepares a single node. What a job of several nodes left on the volume is only a
// part of a step. Without this check, a job that restarted with one node committed the files of
// one rank as the whole checkpoint.
func (u *Uploader) startAlone() error {
	h, _, err := u.readHome(func(h home) bool { return h.Nodes == 1 })
	if err != nil {
		return err
	}
	u.since = h.Since
	u.disown(func(view string) bool { return view != "" })
	defer u.settle()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, snap := range u.snaps {
		if snap.View == beforeRun {
			u.giveUpLocked(snap, "it is one node's part of a checkpoint of several nodes, and this job has one", snap.Committed, true)
		}
	}
	return nil
}

// stamp returns the current time by the clock of the volume.
func (u *Uploader) stamp() (time.Time, error) {
	if err := disk.ReplaceSmall(u.root, stampName, nil, 0o600, false); err != nil {
		return time.Time{}, err
	}
	info, err := u.root.Lstat(stampName)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// nextStamp returns a stamp later than the times of all existing files. File systems count time
// in steps of some milliseconds.
func (m *member) nextStamp() (time.Time, error) {
	first, err := m.u.stamp()
	next := first
	for try := 0; err == nil && !next.After(first) && try < 200; try++ {
		if err = pause(m.ctx, time.Millisecond); err == nil {
			next, err = m.u.stamp()
		}
	}
	return next, err
}

func (m *member) writeHome() error { return m.u.writeHome(m.home) }

func (u *Uploader) writeHome(h home) error {
	text, err := json.Marshal(h)
	if err == nil {
		err = disk.ReplaceSmall(u.root, homeName, text, 0o600, true)
	}
	return err
}

// moveTo records that this member is in another view from now on.
func (m *member) moveTo(view string) {
	since, err := m.nextStamp()
	if err != nil {
		since = time.Now()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.home.Positions) == 0 { // files from before the first view belong to it
		since = m.home.Since
		for i := range m.home.Writings {
			m.home.Writings[i].View = view
		}
	}
	m.home.Positions = append(m.home.Positions, position{view, since})
	if n := len(m.home.Positions); n > maxPositions {
		m.home.Positions = m.home.Positions[n-maxPositions:]
	}
	if werr := m.writeHome(); err == nil {
		err = werr
	}
	if err != nil {
		m.u.log.Warn("cannot record the view on the volume: after a restart, checkpoints held here may not be saved", "error", err)
	}
}

// at returns the view of files that appeared on the volume at time t.
func (m *member) at(t time.Time) (view string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.Before(m.home.Since) {
		return beforeRun
	}
	for i, p := range m.home.Positions {
		if i == 0 || !t.Before(p.Since) {
			view = p.View
		}
	}
	return view
}

// divided returns when the files on the volume were last divided by the start of this run, another
// view or a restore. All files that appeared since belong together.
func (m *member) divided() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.home.Since
	if n := len(m.home.Positions); n > 0 && m.home.Positions[n-1].Since.After(last) {
		last = m.home.Positions[n-1].Since
	}
	if n := len(m.home.Restarts); n > 0 && m.home.Restarts[n-1].Since.After(last) {
		last = m.home.Restarts[n-1].Since
	}
	return last
}

// resolve returns the first view for files that appeared before any view, and its argument for
// others.
func (m *member) resolve(view string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if view == "" && len(m.home.Positions) > 0 {
		return m.home.Positions[0].View
	}
	return view
}

// sighted records that this node has files of a step.
func (m *member) sighted(step int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.home.Seen, step) {
		return
	}
	m.home.Seen = append(m.home.Seen, step)
	if n := len(m.home.Seen); n > maxSeen {
		m.home.Seen = m.home.Seen[n-maxSeen:]
	}
	if err := m.writeHome(); err != nil {
		m.u.log.Warn("cannot record a step on the volume", "step", step, "error", err)
	}
}

// writes reports whether this run of the pod ever had files of a checkpoint.
func (m *member) writes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.home.Seen) > 0
}

// hasSeen reports whether this run of the pod ever had files of a step.
func (m *member) hasSeen(step int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.home.Seen, step)
}
