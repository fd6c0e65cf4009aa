package checkpoint

import (
	"context"
	"sync"

	"github.com/stager-dev/stager/backends"
)

// stepLocks are the steps whose COMMIT this process changes now: in the sender, or in the cleanup.
//
// Stores without conditional writes need the lock, and all stores do for a removal: otherwise the
// COMMIT that is removed may be one that the sender wrote after retention had looked.
type stepLocks struct {
	mu   sync.Mutex // guards held; a leaf
	held map[int64]chan struct{}
}

// lock waits until this process changes the COMMIT of a step nowhere else. The caller must call
// unlock.
func (l *stepLocks) lock(ctx context.Context, step int64) (unlock func(), err error) {
	for {
		held, unlock := l.tryLock(step)
		if unlock != nil {
			return unlock, nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return nil, &backends.Error{Op: "commit", Key: stepDir(step, 0), Kind: backends.Canceled, Err: context.Cause(ctx)}
		}
	}
}

// tryLock takes the lock of a step, or returns a channel that is closed when it is free.
func (l *stepLocks) tryLock(step int64) (held <-chan struct{}, unlock func()) {
	if weaken.unlocked {
		return nil, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.held[step]; held != nil {
		return held, nil
	}
	if l.held == nil {
		l.held = make(map[int64]chan struct{})
	}
	free := make(chan struct{})
	l.held[step] = free
	return nil, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, step)
		close(free)
	})
}
