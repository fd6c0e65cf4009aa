package sample

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// errJam reports that the source has no room for another shard, and that only the sampler can free
// any.
var errJam = errors.New("the source has no space for another shard")

// fill opens shards up to Config.Open.
func (s *Sampler) fill(ctx context.Context) error {
	if s.jam {
		return errJam
	}
	for !s.over && len(s.open) < s.cfg.Open {
		next, err := s.acquire(ctx)
		if end, is := errors.AsType[*window.EndError](err); is {
			s.over, s.early = true, end.Early
			return nil
		}
		if err != nil {
			return err
		}
		s.add(next)
	}
	return nil
}

// add adds a shard to those that are mixed.
func (s *Sampler) add(next *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(next.samples) > next.picked {
		s.open = append(s.open, next)
	}
}

// acquire leases the next shard and indexes it.
func (s *Sampler) acquire(ctx context.Context) (*shard, error) {
	if len(s.rest) > 0 {
		next := s.rest[0]
		s.rest = s.rest[1:]
		return next, s.look(next)
	}
	next, err := s.lease(ctx)
	if err != nil {
		return nil, err
	}
	return next, s.look(next)
}

// lease waits for a shard that is not already leased.
func (s *Sampler) lease(ctx context.Context) (*shard, error) {
	defer s.waitFor(window.CauseBackend)
	wait := time.Duration(0)
	for {
		l, err := s.cfg.Source.Lease(ctx, window.LeaseRequest{Reader: s.cfg.Reader, Wait: wait, Epoch: &s.epoch, EndEarly: !s.late})
		if waited, is := errors.AsType[*window.WaitError](err); is {
			s.waitFor(waited.Cause)
			patience := cmp.Or(s.cfg.jamAfter, jamAfter)
			if waited.Cause != window.CauseBudget || !s.idle() {
				wait = leaseWait
			} else if wait != patience {
				wait = patience
			} else {
				if !s.warned {
					s.log.Warn("the input's window is too small to mix all requested shards, mixing fewer: raise its size, or reduce --open",
						"open", len(s.open), "want", s.cfg.Open)
				}
				s.warned = true
				return nil, errJam
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		s.late = false
		if next := s.hold(l); next != nil {
			return next, nil
		}
	}
}

// idle reports whether readers hold no files whose acknowledgement could free room at the source.
func (s *Sampler) idle() bool {
	s.acknowledge()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files) == 0
}

// hold records a lease. It returns nil for a new lease of a shard that is already held.
func (s *Sampler) hold(l window.Lease) *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h.Epoch == l.Epoch && h.Pos == l.Pos {
			h.Lease = l.ID
			return nil
		}
	}
	next := &shard{Epoch: l.Epoch, Pos: l.Pos, Lease: l.ID, Name: l.Name, Path: l.Path, Size: l.Size, last: -1}
	s.held = append(s.held, next)
	if err := s.saveLocked(); err != nil {
		s.log.Warn("cannot write the state", "error", err)
	}
	return next
}

// look opens and indexes a shard. It refuses a bad shard at the source.
func (s *Sampler) look(next *shard) error {
	err := s.read(next)
	bad, is := errors.AsType[*ArchiveError](err)
	if !is {
		return err
	}
	s.mu.Lock()
	for i, h := range s.held {
		if h == next {
			s.held = append(s.held[:i], s.held[i+1:]...)
			break
		}
	}
	err = errors.Join(err, s.saveLocked())
	s.mu.Unlock()
	if nerr := s.cfg.Source.Nack(next.Lease, bad.Err.Error()); nerr != nil && !errors.Is(nerr, window.ErrNoLease) {
		err = errors.Join(err, nerr)
	}
	return err
}

func (s *Sampler) read(next *shard) error {
	refuse := func(err error) error { return &ArchiveError{s.cfg.Input, next.Name, err} }
	file, err := disk.OpenPath(next.Path)
	if odd, is := errors.AsType[*disk.NotRegularError](err); is && odd.Mode.IsDir() {
		return refuse(errors.New("it is a directory; samples can only be read from archives"))
	} else if is {
		return refuse(err)
	}
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if info.Size() != next.Size {
		return errors.Join(refuse(fmt.Errorf("it has %d bytes, want %d: another program changed it", info.Size(), next.Size)), file.Close())
	}
	f, spans, err := index(next.Name, file, info.Size())
	if err == nil && f != nil && s.format != nil && s.format != f {
		err = fmt.Errorf("it is %s, but earlier shards are %s; formats cannot be mixed", f.name, s.format.name)
	}
	if err != nil {
		return errors.Join(refuse(err), file.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil {
		s.format = f
	}
	next.file, next.samples = file, spans
	s.cfg.shuffle(next)
	return nil
}

// renew renews the leases regularly.
func (s *Sampler) renew(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, id := range s.leases() {
			if err := s.cfg.Source.Renew(id); err != nil {
				s.log.Warn("cannot renew a lease", "lease", id, "error", err)
			}
		}
	}
}

func (s *Sampler) leases() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if !h.Done {
			ids = append(ids, h.Lease)
		}
	}
	return ids
}
