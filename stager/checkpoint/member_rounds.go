package checkpoint

import (
	"context"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// A checkpoint records its round: the number of the last restore agreement when its files
// appeared. From it, nodes know whether they write for the same run of the job, and a restore
// knows whether the job ran after an agreement, or whether the checkpoint was written before and
// only committed late.

// rounds holds the round of the files of each step. Its fields are guarded by member.mu.
type rounds struct {
	m    *member
	seen map[int64]*roundSeen // by step
}

type roundSeen struct {
	files  []local // of which the round was read
	number int     // the round
	known  bool    // number was read
}

// roundRetry is the interval between tries to read the last restore agreement.
const roundRetry = 2 * time.Second

// note reads the round of files of a step, unless it did so for some of these files before. Without
// files, a directory for them has just appeared.
func (r *rounds) note(step int64, files []local) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	if s := r.seen[step]; s != nil && (!s.known || files != nil && (s.files == nil || shares(files, s.files))) {
		s.files = files
		return
	}
	for other := range r.seen {
		if len(r.seen) >= maxSeen && other != step {
			delete(r.seen, other)
		}
	}
	s := &roundSeen{files: files}
	r.seen[step] = s
	m.work.Go(func() { r.read(s) })
}

// read reads the last restore agreement until the store responds.
func (r *rounds) read(s *roundSeen) {
	m := r.m
	for {
		number, err := lastAgreement(m.ctx, m.u.cfg.Store, m.u.cfg.Job)
		if err == nil {
			r.keep(number)
			m.mu.Lock()
			s.number, s.known = number, true
			m.notifyLocked()
			m.mu.Unlock()
			m.u.wakeSender()
			return
		}
		m.note(err, true)
		if pause(m.ctx, roundRetry) != nil {
			return
		}
	}
}

// keep stores the number of the last agreement on the volume, for files that a later process
// finds.
func (r *rounds) keep(number int) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if number <= m.home.Restores {
		return
	}
	m.home.Restores = number
	if err := m.writeHome(); err != nil {
		m.u.log.Warn("cannot record on the volume which step the nodes agreed to restore", "error", err)
	}
}

// of returns the round of the files of a step. While it is being read, of returns the last round
// that this node knows, and where the right one will be.
func (r *rounds) of(step int64) (round int, later *roundSeen) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s := r.seen[step]; {
	case s == nil:
		return m.home.Restores, nil
	case s.known:
		return s.number, nil
	default:
		return m.home.Restores, s
	}
}

// recall records the round of what an earlier process of this node held.
func (r *rounds) recall(snap *snapshot, files []local) {
	r.seen[snap.Step] = &roundSeen{files: files, number: snap.Round, known: true}
}

// roundedLocked sets the round of a snapshot that was taken before the round was read. It returns
// false while it is being read.
func (m *member) roundedLocked(snap *snapshot) bool {
	if snap.round == nil {
		return true
	}
	m.mu.Lock()
	number, known := snap.round.number, snap.round.known
	m.mu.Unlock()
	if !known {
		return false
	}
	if snap.round = nil; number != snap.Round {
		snap.Round = number
		m.identifyLocked(snap)
		m.u.snapshots.rewrite(snap)
	}
	return true
}

// lastAgreement returns the number of the last restore agreement of a job; 0: none.
func lastAgreement(ctx context.Context, store *backends.Store, job string) (last int, err error) {
	for obj, err := range store.List(ctx, group.AgreementsPrefix(job)) {
		if backends.KindOf(err) == backends.NotExist {
			break
		}
		if err != nil {
			return 0, err
		}
		last = max(last, group.AgreementNumber(job, obj.Key))
	}
	return last, nil
}
