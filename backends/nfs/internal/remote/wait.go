package remote

import (
	"context"
	"errors"
	"time"

	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// Backoff when a server asks the client to wait.
const (
	firstWait = 50 * time.Millisecond
	longWait  = 5 * time.Second
	// patience limits the total wait. The caller may retry.
	patience = 25 * time.Second
)

// ErrBusy reports that the server kept asking the client to wait.
var ErrBusy = errors.New("the server keeps asking to retry later, as after a restart or when overloaded")

// Wait is the backoff of one request whose server returns Delay or Grace: from 50 milliseconds to 5
// seconds, and 25 seconds in total. The zero value is ready to use.
type Wait struct {
	next  time.Duration
	until time.Time
}

// Sleep waits before the next attempt. It returns ErrBusy when the total is used up, or the error
// of ctx.
func (w *Wait) Sleep(ctx context.Context) error {
	if w.next == 0 {
		w.next, w.until = firstWait, time.Now().Add(patience)
	}
	if time.Now().Add(w.next).After(w.until) {
		return ErrBusy
	}
	select {
	case <-time.After(w.next):
	case <-ctx.Done():
		return rpc.Ended(ctx)
	}
	w.next = min(2*w.next, longWait)
	return nil
}
