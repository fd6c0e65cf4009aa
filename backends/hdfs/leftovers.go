package hdfs

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// leftovers are temporary files whose writers ended while no NameNode answered. They
// are removed when one answers again: no list shows them, and so nobody else would.
type leftovers struct {
	mu    sync.Mutex // guards all below
	paths []string
}

func (l *leftovers) add(paths ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths = append(l.paths, paths...)
}

func (l *leftovers) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	paths := l.paths
	l.paths = nil
	return paths
}

// discard removes a temporary file, and the folders that are empty without it.
func (b *store) discard(ctx context.Context, temp string) error {
	err := b.with(ctx, "abort", strings.TrimPrefix(temp, "/"), func(s *session) error {
		if err := s.remove(temp); err != nil {
			return err
		}
		b.prune(s, path.Dir(temp)[1:])
		return nil
	})
	if unanswered(err) {
		b.left.add(temp)
	}
	return err
}

// sweep removes what could not be removed before, as long as there are answers.
func (b *store) sweep(ctx context.Context) {
	paths := b.left.take()
	for i, temp := range paths {
		if unanswered(b.discard(ctx, temp)) {
			b.left.add(paths[i+1:]...)
			return
		}
	}
}

func unanswered(err error) bool {
	kind := backends.KindOf(err)
	return err != nil && (kind.Retryable() || kind == backends.Canceled)
}

// sweepWithin is how long Close tries.
const sweepWithin = 5 * time.Second
