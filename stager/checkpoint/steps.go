package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// StepInfo is a step as the store has it.
type StepInfo struct {
	Step        int64     `json:"step"`
	Dir         string    `json:"dir"`                   // its folder in the store
	Committed   bool      `json:"committed"`             // it exists: its COMMIT.json can be read
	Problem     string    `json:"problem,omitempty"`     // why a COMMIT.json that is there does not count
	Created     time.Time `json:"created,omitzero"`      // of a committed one, like what follows
	Attempt     int       `json:"attempt,omitempty"`     //
	SamplesSeen int64     `json:"samplesSeen,omitempty"` //
	Files       int       `json:"files"`                 // of an uncommitted one: objects
	Bytes       int64     `json:"bytes"`
}

// Steps lists the steps of a destination, newest first.
func Steps(ctx context.Context, store *backends.Store) ([]StepInfo, error) {
	listed, err := listSteps(ctx, store)
	if err != nil {
		return nil, err
	}
	infos := make([]StepInfo, len(listed))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(store, 0))
	for i, l := range listed {
		infos[i] = StepInfo{Step: l.step, Dir: l.dir, Files: l.objects, Bytes: l.bytes}
		if !l.committed {
			continue
		}
		g.Go(func() error {
			c, err := readCommit(ctx, store, l.dir)
			switch {
			case err == nil:
				infos[i] = StepInfo{
					Step: l.step, Dir: l.dir, Committed: true, Created: c.Created, Attempt: c.Attempt,
					SamplesSeen: c.SamplesSeen, Files: len(c.Files), Bytes: c.Bytes,
				}
			case bad(err):
				infos[i].Problem = err.Error()
			default:
				return err
			}
			return nil
		})
	}
	return infos, g.Wait()
}

// bad tells whether an error means that a checkpoint is not good, and not that the
// store cannot be asked now.
func bad(err error) bool {
	switch backends.KindOf(err) {
	case backends.NotExist, backends.Corrupt, backends.Changed, backends.Invalid, backends.Unsupported:
		return true
	}
	return false
}

// listed is a step's folder.
type listed struct {
	dir       string
	step      int64
	suffix    int
	committed bool // it has a COMMIT.json, good or bad
	objects   int  // without COMMIT.json
	bytes     int64
}

// listSteps lists the folders of steps, newest first.
func listSteps(ctx context.Context, store *backends.Store) ([]*listed, error) {
	var steps []*listed
	for obj, err := range store.List(ctx, "step-") {
		if unmade(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		dir, rest, _ := strings.Cut(obj.Key, "/")
		step, suffix, ok := parseStepDir(dir)
		if !ok || !belongs(rest) {
			continue
		}
		if len(steps) == 0 || steps[len(steps)-1].dir != dir {
			steps = append(steps, &listed{dir: dir, step: step, suffix: suffix})
		}
		l := steps[len(steps)-1]
		if rest == commitKey {
			l.committed = true
		} else {
			l.objects, l.bytes = l.objects+1, l.bytes+obj.Size
		}
	}
	slices.SortFunc(steps, func(a, b *listed) int {
		return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(b.suffix, a.suffix))
	})
	return steps, nil
}

// unmade tells whether a destination is a folder that is not there yet: the first
// write makes it. A bucket that is not there nobody makes.
func unmade(err error) bool { return errors.Is(err, syscall.ENOENT) }

// belongs tells whether a key below a step's folder is one that stager writes.
func belongs(rest string) bool {
	return rest == commitKey || strings.HasPrefix(rest, dataDir+"/") || strings.HasPrefix(rest, "parts/")
}

// removeStep removes a step, its COMMIT first: from then on it does not exist, and
// a crash leaves what a later pass sweeps. What stager did not write stays.
func removeStep(ctx context.Context, store *backends.Store, dir string) error {
	if err := store.Delete(ctx, dir+"/"+commitKey); err != nil {
		return err
	}
	return removeAll(ctx, store, dir+"/")
}

// removeAll removes what belongs to steps below a prefix, some at once.
func removeAll(ctx context.Context, store *backends.Store, prefix string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(store, 0))
	for obj, err := range store.List(ctx, prefix) {
		if err != nil || gctx.Err() != nil {
			g.Go(func() error { return err })
			break
		}
		if _, rest, _ := strings.Cut(obj.Key, "/"); belongs(rest) {
			g.Go(func() error { return store.Delete(gctx, obj.Key) })
		}
	}
	return g.Wait()
}

// retention decides which steps of a destination go.
type retention struct {
	store *backends.Store
	keep  int              // how many committed ones stay; 0: all
	own   []string         // folders that this process committed, oldest first
	busy  func(int64) bool // steps that are on their way
	good  map[string]bool  // COMMITs that were read before
	log   *slog.Logger
}

// apply removes steps beyond keep and uncommitted ones older than the newest
// committed. A COMMIT that cannot be read neither counts nor goes. The newest
// good one stays always, and so do the last ones that this process committed,
// whatever steps an earlier run has left. It returns the newest committed step, -1
// for none.
func (r *retention) apply(ctx context.Context) (newest int64, err error) {
	steps, err := listSteps(ctx, r.store)
	if err != nil {
		return -1, err
	}
	newest, kept := -1, 0
	for _, l := range steps {
		switch {
		case !l.committed:
			if l.step < newest && !r.busy(l.step) {
				r.log.Info("data without a COMMIT is swept", "step", l.dir, "objects", l.objects)
				err = removeAll(ctx, r.store, l.dir+"/")
			}
		case newest >= 0 && r.keep == 0:
		case kept < max(r.keep, 1):
			var ok bool
			if ok, err = r.check(ctx, l.dir); ok {
				newest, kept = max(newest, l.step), kept+1
			}
		case !slices.Contains(r.own[max(0, len(r.own)-r.keep):], l.dir):
			r.log.Info("an older step is removed", "step", l.dir, "keep", r.keep)
			err = removeStep(ctx, r.store, l.dir)
		}
		if err != nil {
			return newest, err
		}
	}
	return newest, nil
}

// check tells whether a step's COMMIT can be read.
func (r *retention) check(ctx context.Context, dir string) (bool, error) {
	if r.good[dir] {
		return true, nil
	}
	_, err := readCommit(ctx, r.store, dir)
	switch {
	case err == nil:
		r.good[dir] = true
		return true, nil
	case bad(err):
		r.log.Warn("a COMMIT does not count: restore would pass over this step", "step", dir, "error", err)
		return false, nil
	}
	return false, err
}
