package checkpoint

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// Keep says which committed steps stay. The zero value keeps all.
type Keep struct {
	Last    int    // the newest so many; 0: all
	Every   int64  // and those whose step it divides; 0: none
	Best    int    // and so many with the best Metric, of those whose marker told it
	Metric  string // as the marker calls it
	Highest bool   // the best is the highest; else the lowest
}

// good is a step whose COMMIT can be read.
type good struct {
	dir    string
	commit Commit
}

// choose tells which of the good steps stay, given newest first.
func (k Keep) choose(steps []good) map[string]bool {
	stay := make(map[string]bool)
	var ranked []good
	for i, g := range steps {
		if k.Last == 0 || i < k.Last || k.Every > 0 && g.commit.Step%k.Every == 0 {
			stay[g.dir] = true
		}
		if _, ok := g.commit.Metrics[k.Metric]; ok {
			ranked = append(ranked, g)
		}
	}
	slices.SortStableFunc(ranked, func(a, b good) int {
		order := cmp.Compare(a.commit.Metrics[k.Metric], b.commit.Metrics[k.Metric])
		if k.Highest {
			return -order
		}
		return order
	})
	for _, g := range ranked[:min(k.Best, len(ranked))] {
		stay[g.dir] = true
	}
	return stay
}

// PruneConfig says what Prune removes.
type PruneConfig struct {
	Store *backends.Store // a destination
	Keep  Keep
	// Abandoned is how long nothing must have come of a write that never ended. 0: only
	// who knows that nobody writes to the destination says so.
	Abandoned time.Duration
	DryRun    bool         // only tell
	Foreign   Foreign      // "": ForeignKeep
	Log       *slog.Logger // nil: silent
}

// Pruned is what Prune removed of one step.
type Pruned struct {
	Step      int64  `json:"step"`
	Dir       string `json:"dir"`
	Committed bool   `json:"committed"` // else what was left of it, or was on its way
	// Unfinished are writes that never ended, which no List shows: files of a temporary
	// name, or uploads in parts. Outside of all steps' folders Dir is empty.
	Unfinished bool `json:"unfinished,omitempty"`
	// Foreign is an upload in parts, of the key Key, that may be another program's. Kept
	// says that it is only listed.
	Foreign bool   `json:"foreign,omitempty"`
	Kept    bool   `json:"kept,omitempty"`
	Key     string `json:"key,omitempty"`

	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Prune removes the steps that Keep does not name, and data of steps that were never
// committed and are older than the newest that is. What a step that stays refers to
// stays too, and so does the newest good step, and what stager did not write.
func Prune(ctx context.Context, cfg PruneConfig) ([]Pruned, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := retention{store: cfg.Store, keep: cfg.Keep, abandoned: cfg.Abandoned, dry: cfg.DryRun, foreign: cfg.Foreign, log: cfg.Log}
	_, err := r.apply(ctx)
	if err == nil {
		err = r.sweepRemains(ctx, "")
	}
	if mayNotLook(err) {
		cfg.Log.Warn("what killed uploads may have left cannot be looked for", "error", err)
		err = nil
	}
	return r.removed, err
}

// retention decides which steps of a destination go, and removes them.
type retention struct {
	store *backends.Store
	keep  Keep
	own   []string            // folders that this process committed, oldest first
	busy  func(int64) bool    // steps that are on their way; nil: none
	read  map[string]readOnce // COMMITs that were read before, by folder; may be nil
	dry   bool
	log   *slog.Logger

	ids       map[string]bool // of uploads of which nobody else goes on with; see sweepRemains
	abandoned time.Duration
	foreign   Foreign

	removed []Pruned
}

// readOnce is a COMMIT in the version that was read.
type readOnce struct {
	version backends.Version
	commit  Commit
}

// survey is what a destination holds.
type survey struct {
	steps []*listed        // newest first
	good  []good           // the same
	bad   map[string]error // folders whose COMMIT does not count
	later bool             // one is of a later version, and may refer to anything
}

func (r *retention) survey(ctx context.Context) (s survey, err error) {
	if s.steps, err = listSteps(ctx, r.store); err != nil {
		return s, err
	}
	s.bad = make(map[string]error)
	for _, l := range s.steps {
		if !l.committed {
			continue
		}
		before, ok := r.read[l.dir]
		if !ok || before.version != l.version || l.version == "" {
			before.version = l.version
			before.commit, err = readCommit(ctx, r.store, l.dir)
		}
		switch {
		case err == nil:
			s.good = append(s.good, good{l.dir, before.commit})
			if r.read != nil {
				r.read[l.dir] = before
			}
		case bad(err):
			r.log.Warn("a COMMIT does not count: restore would pass over this step", "step", l.dir, "error", err)
			s.bad[l.dir] = err
			s.later = s.later || backends.KindOf(err) == backends.Unsupported
		default:
			return s, err
		}
	}
	return s, nil
}

// apply removes what does not stay, and uncommitted steps older than the newest good
// one. A COMMIT that cannot be read does not count, and goes only when it is older
// than all that stay for their age. The newest good one stays always, and so do the
// last ones that this process committed, whatever steps an earlier run has left. It
// returns the newest good step, -1 for none.
//
// COMMITs go first. Then it is looked anew what the others refer to, so that a step
// that was committed meanwhile keeps what it shares; see earlier.
func (r *retention) apply(ctx context.Context) (newest int64, err error) {
	s, err := r.survey(ctx)
	if err != nil || len(s.good) == 0 {
		return -1, err
	}
	newest = s.good[0].commit.Step
	going := r.going(s)
	for _, l := range s.steps {
		if !going[l.dir] {
			continue
		}
		r.log.Info("an older step is removed", "step", l.dir)
		if err := r.remove(ctx, l.dir+"/"+commitKey); err != nil {
			return newest, err
		}
	}
	if len(going) > 0 && !r.dry {
		if s, err = r.survey(ctx); err != nil {
			return newest, err
		}
	}
	if s.later {
		r.log.Warn("a step was committed by a later version of stager, so no data is removed that it may need")
		return newest, nil
	}
	var doomed []*listed
	for _, l := range s.steps {
		over := going[l.dir] || !l.committed && l.step < newest
		if over && (r.busy == nil || !r.busy(l.step)) {
			doomed = append(doomed, l)
		}
	}
	if len(doomed) == 0 {
		return newest, nil
	}
	needed, err := r.needed(ctx, s, going, newest)
	if err != nil {
		return newest, err
	}
	for _, l := range doomed {
		if err := r.sweep(ctx, l, going[l.dir], needed); err != nil {
			return newest, err
		}
	}
	return newest, nil
}

// going are the folders whose COMMIT is removed.
func (r *retention) going(s survey) map[string]bool {
	going := make(map[string]bool)
	if r.keep.Last == 0 {
		return going
	}
	stay := r.keep.choose(s.good)
	for _, dir := range r.own[max(0, len(r.own)-r.keep.Last):] {
		stay[dir] = true
	}
	kept := 0
	for _, l := range s.steps {
		switch _, unreadable := s.bad[l.dir]; {
		case !l.committed:
		case unreadable:
			if kept >= r.keep.Last && backends.KindOf(s.bad[l.dir]) != backends.Unsupported {
				going[l.dir] = true
			}
		case stay[l.dir]:
			kept++
		default:
			kept++
			going[l.dir] = true
		}
	}
	return going
}

// needed are the keys that what stays refers to: COMMITs, and parts of steps that may
// yet be committed.
func (r *retention) needed(ctx context.Context, s survey, going map[string]bool, newest int64) (map[string]bool, error) {
	needed := make(map[string]bool)
	for _, g := range s.good {
		if going[g.dir] {
			continue // only in a dry run
		}
		for _, f := range g.commit.Files {
			needed[g.commit.key(g.dir, f)] = true
		}
	}
	for _, l := range s.steps {
		if l.committed || l.step < newest && (r.busy == nil || !r.busy(l.step)) {
			continue
		}
		for _, obj := range l.objects {
			if _, _, ok := parsePartKey(strings.TrimPrefix(obj.Key, l.dir+"/")); !ok {
				continue
			}
			p, err := readPart(ctx, r.store, obj.Key)
			if err != nil && !bad(err) {
				return nil, err
			}
			for _, f := range p.Files {
				needed[f.At] = true
			}
		}
	}
	return needed, nil
}

// sweep removes what nobody needs of a step.
func (r *retention) sweep(ctx context.Context, l *listed, committed bool, needed map[string]bool) error {
	done := Pruned{Step: l.step, Dir: l.dir, Committed: committed}
	var keys []string
	for _, obj := range l.objects {
		if !needed[obj.Key] {
			keys = append(keys, obj.Key)
			done.Objects++
			done.Bytes += obj.Size
		}
	}
	if len(keys) == 0 && !committed {
		return nil // others live on it
	}
	if !committed {
		r.log.Info("data without a COMMIT is swept", "step", l.dir, "objects", done.Objects)
	}
	r.removed = append(r.removed, done)
	return r.remove(ctx, keys...)
}

// remove removes objects, some at once.
func (r *retention) remove(ctx context.Context, keys ...string) error {
	if r.dry {
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(r.store, 0))
	for _, key := range keys {
		g.Go(func() error { return r.store.Delete(gctx, key) })
	}
	return g.Wait()
}

// tidy removes what earlier uploads left of a step that is committed, unless another
// step refers to it.
func (r *retention) tidy(ctx context.Context, dir string, commit *Commit) error {
	own := make(map[string]bool)
	for _, f := range commit.Files {
		own[commit.key(dir, f)] = true
	}
	for node := range commit.Nodes {
		own[dir+"/"+partKey(commit.Attempt, node)] = true
	}
	left := &listed{dir: dir, step: commit.Step}
	for obj, err := range r.store.List(ctx, dir+"/") {
		if err != nil {
			return err
		}
		if rest := strings.TrimPrefix(obj.Key, dir+"/"); belongs(rest) && rest != commitKey && !own[obj.Key] {
			left.objects = append(left.objects, obj)
		}
	}
	if len(left.objects) == 0 {
		return nil
	}
	s, err := r.survey(ctx)
	if err != nil || s.later {
		return err
	}
	needed, err := r.needed(ctx, s, nil, -1)
	if err != nil {
		return err
	}
	return r.sweep(ctx, left, false, needed)
}
