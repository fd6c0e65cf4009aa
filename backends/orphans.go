package backends

import (
	"context"
	"sync"
	"time"
)

// Orphans are the temporary files of a store whose writers ended while no server
// answered: nobody knows whether they are there. They are removed when one answers
// again; no list shows them, and so nobody else would. The zero value is ready, and all
// methods may be called from many goroutines at once.
type Orphans struct {
	mu    sync.Mutex // guards all below
	names []string
}

// Keep remembers a name when err, what its writer ended with, leaves open whether the
// server has it.
func (l *Orphans) Keep(name string, err error) {
	if !noResponse(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, name)
}

// Sweep removes what is remembered, as long as there are answers. What gets none is
// remembered for the next time.
func (l *Orphans) Sweep(remove func(name string) error) {
	l.mu.Lock()
	names := l.names
	l.names = nil
	l.mu.Unlock()
	for i, name := range names {
		if err := remove(name); noResponse(err) {
			for _, name := range names[i:] {
				l.Keep(name, err)
			}
			return
		}
	}
}

// SweepAtClose is Sweep for a store that is about to close, which waits five seconds at
// most.
func (l *Orphans) SweepAtClose(remove func(ctx context.Context, name string) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l.Sweep(func(name string) error { return remove(ctx, name) })
}

func noResponse(err error) bool {
	kind := KindOf(err)
	return err != nil && (kind.Retryable() || kind == Canceled)
}
