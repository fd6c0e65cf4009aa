package backends

import (
	"context"
	"iter"
	"strings"
)

// List yields the objects below prefix; see Source. After a failure it resumes behind the last key
// that it yielded.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return s.list(ctx, prefix, s.backend.List)
}

// ListLevel yields the objects and directories whose keys begin with prefix, up to the next "/"; see
// LevelLister. Backends that cannot list one level list everything for it.
func (s *Store) ListLevel(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return s.list(ctx, prefix, func(ctx context.Context, full string) iter.Seq2[Object, error] {
		if l, ok := s.backend.(LevelLister); ok {
			return directories(l.ListLevel(ctx, full), full)
		}
		return directories(s.backend.List(ctx, full), full)
	})
}

// directories replaces the objects below each directory by the directory. A prefix ends before its
// name, or in it.
func directories(all iter.Seq2[Object, error], prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		last := ""
		for obj, err := range all {
			if err == nil && len(obj.Key) > len(prefix) {
				if name, _, below := strings.Cut(obj.Key[len(prefix):], "/"); below {
					dir := prefix + name + "/"
					if dir == last {
						continue
					}
					last, obj = dir, Object{Key: dir}
				}
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// list yields what a listing of the backend yields, with retries.
func (s *Store) list(ctx context.Context, prefix string, backend func(context.Context, string) iter.Seq2[Object, error]) iter.Seq2[Object, error] {
	ctx = skippedBelow(ctx, s.prefix)
	return func(yield func(Object, error) bool) {
		last, stopped := "", false
		err := s.retry(ctx, "list", prefix, func(ctx context.Context, watchdog *stallDetector) error {
			resumed := last
			for obj, err := range backend(ctx, s.prefix+prefix) {
				if err != nil {
					return err
				}
				obj.Key = strings.TrimPrefix(obj.Key, s.prefix)
				if obj.Key <= resumed {
					watchdog.alive()
					continue // yielded before the failure, or the directory itself
				}
				if obj.Key <= last {
					return Errorf(Corrupt, "list", prefix, "%q is listed after %q, so keys may be missing", obj.Key, last)
				}
				last = obj.Key
				watchdog.Reset()
				watchdog.Pause() // time spent by the caller is not a stall of the store
				if !yield(obj, nil) {
					stopped = true
					return nil
				}
				watchdog.alive()
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Object{}, err)
		}
	}
}
