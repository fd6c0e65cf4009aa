package backends

import (
	"context"
	"sync"
	"time"
)

// Orphans remembers temporary files whose writers ended while the server did not respond, so it is
// unknown whether they exist. They are removed once the server responds again. No listing shows
// them, so nothing else would remove them. The zero value is ready to use, and all methods are safe
// for concurrent use.
type Orphans struct {
	mu    sync.Mutex // guards the fields below
	names []string
}

// Keep remembers name if err, the writer's final error, leaves open whether the server has it.
func (l *Orphans) Keep(name string, err error) {
	if !noResponse(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, name)
}

// Sweep removes the remembered files while the server responds. Files without a response stay
// remembered.
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

// SweepAtClose is Sweep for a store that is closing. It takes at most five seconds.
func (l *Orphans) SweepAtClose(remove func(ctx context.Context, name string) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l.Sweep(func(name string) error { return remove(ctx, name) })
}

func noResponse(err error) bool {
	kind := KindOf(err)
	return err != nil && (kind.Retryable() || kind == Canceled)
}
