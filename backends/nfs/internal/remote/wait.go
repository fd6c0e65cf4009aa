package remote

import (
	"context"
	"errors"
	"time"

	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// The back-off when a server asks to wait.
const (
	firstWait = 50 * time.Millisecond
	longWait  = 5 * time.Second
	// patience is how long a server may ask to wait. Whoever calls may try again.
	patience = 25 * time.Second
)

// ErrBusy says that the server kept asking to wait.
var ErrBusy = errors.New("the server keeps asking to wait, as it does after its restart or when it is overloaded")

// Wait is the back-off of one request when its server answers Delay or Grace: from
// 50 milliseconds to 5 seconds, and 25 seconds in all. The zero value begins.
type Wait struct {
	next  time.Duration
	until time.Time
}

// Sleep waits before the next try. It returns ErrBusy when there was enough of that,
// or the end of ctx.
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
