package checkpoint

import (
	"context"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// A checkpoint records the number of the last restore agreement when its files appeared. From it,
// a restore knows whether the job ran after an agreement, or whether the checkpoint was written
// before and only committed late.

// restoresSeen holds, for each step, the last restore agreement when its files appeared. Its
// fields are guarded by member.mu.
type restoresSeen struct {
	m    *member
	seen map[int64]*restoreSeen // by step
}

type restoreSeen struct {
	read   chan struct{} // closed when number and err are known
	number int
	err    error
}

// note reads the number of the last agreement for a step whose files appear. anew means that they
// may be different files than before.
func (r *restoresSeen) note(step int64, anew bool) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := r.seen[step]; s != nil && (!anew || !s.known()) || m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	for other := range r.seen {
		if len(r.seen) >= maxSeen && other != step {
			delete(r.seen, other)
		}
	}
	s := &restoreSeen{read: make(chan struct{})}
	r.seen[step] = s
	m.work.Go(func() {
		defer close(s.read)
		if s.number, s.err = lastAgreement(m.ctx, m.u.cfg.Store, m.u.cfg.Job); s.err == nil {
			r.keep(s.number)
		}
	})
}

func (s *restoreSeen) known() bool {
	select {
	case <-s.read:
		return true
	default:
		return false
	}
}

// keep stores the number of the last agreement on the volume, for files that a later process
// finds.
func (r *restoresSeen) keep(number int) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if number <= m.home.Restores {
		return
	}
	m.home.Restores = number
	if err := m.writeHome(); err != nil {
		m.u.log.Warn("the last agreement on what to restore cannot be noted on the volume", "error", err)
	}
}

// before returns the number of the last agreement when files of a step appeared.
func (r *restoresSeen) before(ctx context.Context, step int64) (int, error) {
	m := r.m
	m.mu.Lock()
	s, kept := r.seen[step], m.home.Restores
	m.mu.Unlock()
	if s == nil {
		return kept, nil
	}
	select {
	case <-s.read:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if s.err == nil {
		return s.number, nil
	}
	return lastAgreement(ctx, m.u.cfg.Store, m.u.cfg.Job)
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
