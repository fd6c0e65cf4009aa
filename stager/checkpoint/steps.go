package checkpoint

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// StepInfo describes a step in the store.
type StepInfo struct {
	Step        int64     `json:"step"`
	Dir         string    `json:"dir"`               // its directory in the store
	Committed   bool      `json:"committed"`         // its COMMIT.json exists and can be read
	Problem     string    `json:"problem,omitempty"` // why an existing COMMIT.json is invalid, or what is wrong with the files
	Created     time.Time `json:"created,omitzero"`  // of a committed step, like the next fields
	Attempt     int       `json:"attempt,omitempty"`
	Nodes       int       `json:"nodes,omitempty"`
	SamplesSeen int64     `json:"samplesSeen,omitempty"`
	Files       int       `json:"files"` // of an uncommitted step: objects
	Bytes       int64     `json:"bytes"`
	Shared      int64     `json:"shared,omitempty"`   // bytes of these that are stored with other steps
	Verified    bool      `json:"verified,omitempty"` // every byte was read and verified

	Metrics map[string]float64 `json:"metrics,omitempty"`

	Evidence    string `json:"evidence,omitempty"`    // what indicated that it is complete
	Provisional bool   `json:"provisional,omitempty"` // only a quiet period or the next checkpoint did
}

// Steps lists the steps of a destination, newest first. It checks that every file of a committed
// step exists with the right size; Verify reads the files. It reads a step again that is removed
// or replaced after the listing.
func Steps(ctx context.Context, store *backends.Store) ([]StepInfo, error) {
	listed, err := listSteps(ctx, store)
	if err != nil {
		return nil, err
	}
	found := make([]StepInfo, len(listed))
	gone := make([]bool, len(listed))
	sizes := make(map[string]int64)
	for _, l := range listed {
		for _, obj := range l.objects {
			sizes[obj.Key] = obj.Size
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(store, 0))
	for i, l := range listed {
		if found[i] = partial(l); !l.committed {
			continue
		}
		g.Go(func() (err error) {
			if found[i], err = infoOf(gctx, store, l, sizes); err == nil && found[i].Problem != "" {
				found[i], gone[i], err = lookAgain(gctx, store, l)
			}
			return err
		})
	}
	err = g.Wait()
	infos := make([]StepInfo, 0, len(found))
	for i, info := range found {
		if !gone[i] {
			infos = append(infos, info)
		}
	}
	return infos, err
}

// partial describes a step that is not committed.
func partial(l *listed) StepInfo {
	return StepInfo{Step: l.step, Dir: l.dir, Files: len(l.objects), Bytes: l.bytes}
}

// infoOf reads the COMMIT of a step and compares it with the store. With nil sizes, it lists the
// store.
func infoOf(ctx context.Context, store *backends.Store, l *listed, sizes map[string]int64) (StepInfo, error) {
	info := partial(l)
	c, err := readCommit(ctx, store, l.dir)
	if err == nil {
		info = StepInfo{
			Step: l.step, Dir: l.dir, Committed: true, Created: c.Created, Attempt: c.Attempt, Nodes: c.Nodes,
			SamplesSeen: c.SamplesSeen, Metrics: c.Metrics, Files: len(c.Files), Bytes: c.Bytes,
			Evidence: c.Evidence, Provisional: c.Provisional,
		}
		for _, f := range c.Files {
			if f.At != "" && !strings.HasPrefix(f.At, l.dir+"/") {
				info.Shared += f.Size
			}
		}
		if sizes == nil {
			sizes, err = sizesOf(ctx, store, l.dir, &c)
		}
		if err == nil {
			err = c.missing(l.dir, sizes)
		}
	}
	if err != nil && !bad(err) {
		return info, err
	}
	if err != nil {
		info.Problem = err.Error()
	}
	return info, nil
}

// lookAgain reads a step again whose COMMIT could not be read, or whose data were missing, after
// a listing. gone reports that the step was removed since. A problem is reported only when the
// COMMIT did not change while the data were listed.
func lookAgain(ctx context.Context, store *backends.Store, l *listed) (info StepInfo, gone bool, err error) {
	for range maxListings {
		before, err := listBelow(ctx, store, l.dir+"/")
		if err != nil || len(before) == 0 {
			return info, true, err
		}
		if l = before[0]; !l.committed {
			return partial(l), false, nil
		}
		if info, err = infoOf(ctx, store, l, nil); err != nil || info.Problem == "" {
			return info, false, err
		}
		after, err := listBelow(ctx, store, l.dir+"/")
		if err != nil {
			return info, false, err
		}
		if len(after) > 0 && after[0].committed && after[0].version == l.version && after[0].modified.Equal(l.modified) {
			return info, false, nil
		}
	}
	return info, false, nil
}

// bad reports whether an error means that a checkpoint is invalid, rather than that the store is
// unreachable.
func bad(err error) bool {
	switch backends.KindOf(err) {
	case backends.NotExist, backends.Corrupt, backends.Changed, backends.Invalid, backends.Unsupported:
		return true
	}
	return false
}

// listed is a step's directory.
type listed struct {
	dir       string
	step      int64
	suffix    int
	committed bool              // it has a COMMIT.json, valid or not
	version   backends.Version  // of the COMMIT.json
	modified  time.Time         // of the COMMIT.json
	objects   []backends.Object // without COMMIT.json
	bytes     int64

	commit    *Commit // once read
	commitErr error   // why it is unreadable or invalid
}

// listSteps lists the directories of steps, highest number first.
func listSteps(ctx context.Context, store *backends.Store) ([]*listed, error) {
	return listBelow(ctx, store, "step-")
}

// listBelow is listSteps for keys with a prefix.
func listBelow(ctx context.Context, store *backends.Store, prefix string) ([]*listed, error) {
	var steps []*listed
	for obj, err := range store.List(ctx, prefix) {
		if backends.Empty(err) {
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
			l.committed, l.version, l.modified = true, obj.Version, obj.ModTime
		} else {
			l.objects, l.bytes = append(l.objects, obj), l.bytes+obj.Size
		}
	}
	slices.SortFunc(steps, func(a, b *listed) int {
		return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(b.suffix, a.suffix))
	})
	return steps, nil
}

// belongs reports whether stager writes a key with this name below a step's directory.
func belongs(rest string) bool {
	return rest == commitKey || strings.HasPrefix(rest, dataDir+"/") || strings.HasPrefix(rest, "parts/")
}
