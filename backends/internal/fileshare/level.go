package fileshare

import (
	"context"
	"iter"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// ListLevel implements backends.LevelLister. It reads one directory.
func ListLevel(ctx context.Context, t Tree, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		dir, ok := directoryOf(t, "list", prefix)
		if !ok {
			return
		}
		if err := Ended(ctx, "list", prefix); err != nil {
			yield(backends.Object{}, err)
			return
		}
		place, err := t.Locate(ctx, dir)
		var entries []Entry
		if err == nil {
			entries, err = (&lister{ctx: ctx, tree: t, prefix: prefix}).entries(place)
		}
		if err != nil {
			if missing, err := isMissing(t, "list", dir, err); !missing {
				yield(backends.Object{}, err)
			}
			return
		}
		for _, e := range entries {
			obj := e.Object(t, path.Join(dir, e.Name))
			if strings.HasSuffix(e.Name, "/") {
				obj = backends.Object{Key: obj.Key + "/"}
			}
			if !yield(obj, nil) {
				return
			}
		}
	}
}

// ListLevel implements backends.LevelLister.
func (s *Share) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return ListLevel(ctx, s.p, prefix)
}
