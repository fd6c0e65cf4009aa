package soak

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// fault is something that goes wrong for a while. Each returns when it is over.
type fault struct {
	name string
	do   func(*soak, context.Context) error
}

// faults are all of them. lasts is how long those go on that have a duration.
var faults = []fault{
	{"the store is slow (300 ms)", func(s *soak, ctx context.Context) error {
		s.proxy.Delay(300 * time.Millisecond)
		return s.lasts(ctx)
	}},
	{"connections are reset", func(s *soak, ctx context.Context) error {
		for range 8 {
			s.proxy.Reset(4)
			pause(ctx, 200*time.Millisecond)
		}
		return nil
	}},
	{"503 to every request", func(s *soak, ctx context.Context) error {
		s.proxy.SlowDown(1 << 30)
		return s.lasts(ctx)
	}},
	{"answers are cut", func(s *soak, ctx context.Context) error {
		s.proxy.Cut(30, 10_000)
		return s.lasts(ctx)
	}},
	{"requests are never answered", func(s *soak, ctx context.Context) error {
		s.proxy.Hang(12)
		return s.lasts(ctx)
	}},
	{"answers drip", func(s *soak, ctx context.Context) error {
		s.proxy.Drip(12, 16<<10)
		return s.lasts(ctx)
	}},
	{"the store cannot be reached", func(s *soak, ctx context.Context) error {
		s.proxy.Down(true)
		return s.lasts(ctx)
	}},
	{"the store is killed and started", func(s *soak, ctx context.Context) error {
		return errors.Join(s.Store.Kill(), s.lasts(ctx), s.Store.Start(context.WithoutCancel(ctx)))
	}},
	{"the store is frozen", func(s *soak, ctx context.Context) error {
		return errors.Join(s.Store.Freeze(), s.lasts(ctx), s.Store.Thaw())
	}},
	// The key that the store knew is worth nothing from this moment on, while requests are on their way.
	// The store is away when the next one is written: a command that begins with a key that the store does
	// not know yet is refused, as with a wrong one.
	{"credentials are rotated", func(s *soak, ctx context.Context) error {
		err := s.Store.Kill()
		s.Store.SecretKey = rand.Text()
		return errors.Join(err, s.writeSecrets(), s.Store.Start(context.WithoutCancel(ctx)))
	}},
	{"the disk of a window is full", func(s *soak, ctx context.Context) error {
		return s.fill(ctx, s.feeders[s.below(len(s.feeders))].node)
	}},
	{"the disk of a trainer is full", func(s *soak, ctx context.Context) error {
		return s.fill(ctx, s.savers[s.below(len(s.savers))].node)
	}},
	{"a daemon with a window is killed", func(s *soak, ctx context.Context) error { return s.feeders[1].restart(ctx) }},
	{"a daemon with an output is killed", func(s *soak, ctx context.Context) error { return s.savers[1].restart(ctx) }},
}

// lasts waits while a fault lasts.
func (s *soak) lasts(ctx context.Context) error {
	pause(ctx, s.between(time.Second))
	return nil
}

// fill leaves a volume next to no room for a while.
func (s *soak) fill(ctx context.Context, n *node) error {
	used, err := n.used()
	if err != nil {
		return err
	}
	return errors.Join(n.resize(used+64<<10), s.lasts(ctx), n.resize(volumeSize))
}

// disturb has each fault come once in every round, in random order, with calm between them.
func (s *soak) disturb(ctx context.Context) error {
	for {
		s.mu.Lock()
		order := s.random.Perm(len(faults))
		s.mu.Unlock()
		for _, i := range order {
			if !pause(ctx, s.between(1500*time.Millisecond)) {
				return nil
			}
			err := faults[i].do(s, ctx)
			s.proxy.Calm()
			if err != nil {
				return err
			}
			s.count(faults[i].name)
		}
	}
}
