package hdfs

import (
	"context"
	"path"
	"strings"
)

// discard removes a temporary file and the directories that become empty.
func (b *store) discard(ctx context.Context, temp string) error {
	return b.with(ctx, "abort", strings.TrimPrefix(temp, "/"), func(s *session) error {
		if err := s.remove(temp); err != nil {
			return err
		}
		b.prune(s, path.Dir(temp)[1:])
		return nil
	})
}

// sweep retries earlier failed removals until one fails.
func (b *store) sweep(ctx context.Context) {
	b.left.Sweep(func(temp string) error { return b.discard(ctx, temp) })
}
