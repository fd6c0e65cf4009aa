package checkpoint

import (
	"context"
	"strings"
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

// roundSeen is the round of the files of one writing of a step. The number read from the store may
// be that of an agreement made after they appeared; [home.round] corrects it.
type roundSeen struct {
	files  []local   // of which the round was read; nil: only their directory has appeared
	first  time.Time // when the first of them appeared, by the clock of the volume; zero: unknown
	number int       // the last agreement
	known  bool      // number was read
}

// restart is a restore in this run of the pod, between two runs of its trainer. It divides the
// files on the volume: those of the run before appeared before it.
type restart struct {
	Agreement int       `json:"agreement"`
	Since     time.Time `json:"since"` // by the clock of the volume
}

// round returns the round of files that appeared at some time, where number is the last agreement
// in the store, read at that time or later.
func (h *home) round(number int, first time.Time) int {
	if first.IsZero() {
		return number
	}
	for _, r := range h.Restarts {
		if first.Before(r.Since) {
			return min(number, r.Agreement-1)
		}
		number = max(number, r.Agreement)
	}
	return number
}

// Restored records that this node now restores what the nodes of a job agreed on, by the number of
// the agreement. Files that are on the volume belong to the run of the trainer that has ended. The
// caller reports it before the trainer continues. Restored does nothing if source, the URL
// of the agreement, is not the destination, for another job, for an agreement that it knows, and
// without other nodes.
//
// Without it, the number of the agreement is read from the store when files appear. If the store
// responds late, files from before the restore would count as files from after it, and could be
// saved together with those that other nodes write again.
func (u *Uploader) Restored(source, job string, agreement int) error {
	m := u.member
	if m == nil || job != u.cfg.Job || strings.TrimRight(source, "/") != strings.TrimRight(u.cfg.Store.Name(), "/") {
		return nil
	}
	since, err := m.nextStamp()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &m.home
	if n := len(h.Restarts); agreement < 1 || n > 0 && agreement <= h.Restarts[n-1].Agreement {
		return nil
	}
	h.Restarts = append(h.Restarts, restart{agreement, since})
	if n := len(h.Restarts); n > maxPositions {
		h.Restarts = h.Restarts[n-maxPositions:]
	}
	h.Restores = max(h.Restores, agreement)
	return m.writeHome()
}

// roundRetry is the interval between tries to read the last restore agreement.
const roundRetry = 2 * time.Second

// note reads the round of files of a step, of which the first appeared at a time, unless it did so
// for some of these files before. Without files, a directory for them has just appeared.
func (r *rounds) note(step int64, files []local, first time.Time) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	if s := r.seen[step]; s != nil && s.covers(files) {
		if s.files == nil || first.Before(s.first) {
			s.first = first
		}
		s.files = files
		return
	}
	for other := range r.seen {
		if len(r.seen) >= maxSeen && other != step {
			delete(r.seen, other)
		}
	}
	s := &roundSeen{files: files, first: first}
	r.seen[step] = s
	m.work.Go(func() { r.read(s) })
}

// covers reports whether files belong to the writing whose round is known or being read. Another
// writing needs its own round, also while that of the one before is being read: a round that was
// asked for before is too early for it.
func (s *roundSeen) covers(files []local) bool {
	switch {
	case files == nil:
		return s.files == nil && !s.known
	case s.files == nil: // their directory appeared
		return true
	}
	return shares(files, s.files)
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
		return m.home.round(s.number, s.first), nil
	default:
		return m.home.round(m.home.Restores, s.first), s
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
	number, known := m.home.round(snap.round.number, snap.round.first), snap.round.known
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
