package checkpoint

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
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
	dir     string
	commit  Commit
	version backends.Version // of the COMMIT.json

	modified time.Time // by the store's clock
}

func (g *good) order() *commitOrder {
	step, suffix, _ := parseStepDir(g.dir)
	return g.commit.order(step, suffix, g.modified)
}

// choose returns which of the good steps stay, given in the order of their COMMITs, newest
// first. The newest final one
// always does, as restore prefers it to provisional ones.
func (k Keep) choose(steps []good) map[string]bool {
	stay := make(map[string]bool)
	var ranked []good
	final := false
	for i, g := range steps {
		if k.Last == 0 || i < k.Last || k.Every > 0 && g.commit.Step%k.Every == 0 {
			stay[g.dir] = true
		}
		if !final && !g.commit.Provisional {
			final, stay[g.dir] = true, true
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
	// name, or uploads in parts. Outside of all steps' directories Step is -1 and Dir is empty, or
	// "nodes" for records of former nodes, which are not Unfinished.
	Unfinished bool `json:"unfinished,omitempty"`
	// Foreign is an upload in parts, of the key Key, that may be another program's. Kept
	// says that it is only listed.
	Foreign bool   `json:"foreign,omitempty"`
	Kept    bool   `json:"kept,omitempty"`
	Key     string `json:"key,omitempty"`

	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Prune removes the steps that Keep does not name, and uploads that were never committed,
// of steps older than the newest that is, when nothing came of them for Abandoned, and the
// records of nodes that no step and no living node needs. What a
// step that stays refers to stays too, and so does the newest good step, and what stager
// did not write.
func Prune(ctx context.Context, cfg PruneConfig) ([]Pruned, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := retention{store: cfg.Store, keep: cfg.Keep, nodes: true, abandoned: cfg.Abandoned, dry: cfg.DryRun, foreign: cfg.Foreign, log: cfg.Log, alive: make(map[string]bool)}
	err := r.askTime(ctx)
	if err == nil {
		_, err = r.apply(ctx)
	}
	if err == nil {
		err = r.sweepOrphans(ctx, "")
	}
	if err == nil {
		err = r.sweepUploadRecords(ctx)
	}
	if listingDenied(err) {
		cfg.Log.Warn("what killed uploads may have left cannot be looked for", "error", err)
		err = nil
	}
	return r.removed, err
}

// retention decides which steps of a destination go, and removes them.
type retention struct {
	store *backends.Store
	keep  Keep
	own   []string            // directories that this process committed, oldest first
	busy  func(int64) bool    // steps that are on their way; nil: none
	read  map[string]readOnce // COMMITs that were read before, by directory; may be nil
	nodes bool                // records of former nodes go, too
	dry   bool
	log   *slog.Logger

	ids       map[string]bool // of uploads of which nobody else goes on with; see sweepOrphans
	abandoned time.Duration
	foreign   Foreign
	uploads   *recordedUploads // nil until it is needed
	alive     map[string]bool  // records of uploads that a sweep found, by key
	now       time.Time        // by the store's clock, as late as is known; see removal.go
	finished  finished

	removed []Pruned
	left    []good // steps that stay, newest first
}

// readOnce is a COMMIT in the version that was read.
type readOnce struct {
	version backends.Version
	commit  Commit
}

// storeListing is what a destination holds.
type storeListing struct {
	steps []*listed          // newest first
	good  []good             // the same
	bad   map[string]error   // directories whose COMMIT does not count
	later bool               // one is of a later version, and may refer to anything
	named map[string]bool    // keys that a COMMIT or an upload on its way refers to
	says  map[string]*Commit // of the good ones, by directory
}

// maxListTries is how often a destination is listed anew when it changes under way.
const maxListTries = 10

// list lists the destination and reads its COMMITs, and the records of uploads that may
// yet be committed. When one of them goes under way, it begins anew: what that one
// referred to may be named by another that came since.
func (r *retention) list(ctx context.Context) (s storeListing, err error) {
	for range maxListTries {
		s, err = r.listOnce(ctx)
		if kind := backends.KindOf(err); kind != backends.NotExist && kind != backends.Changed {
			return s, err
		}
	}
	return s, err
}

func (r *retention) listOnce(ctx context.Context) (s storeListing, err error) {
	if s.steps, err = listSteps(ctx, r.store); err != nil {
		return s, err
	}
	s.bad, s.named, s.says = make(map[string]error), make(map[string]bool), make(map[string]*Commit)
	for _, l := range s.steps {
		r.noteTimes(l)
		if !l.committed {
			continue
		}
		before, ok := r.read[l.dir]
		if !ok || before.version != l.version || l.version == "" {
			before.version = l.version
			before.commit, err = readCommit(ctx, r.store, l.dir)
		}
		switch kind := backends.KindOf(err); {
		case err == nil:
			s.good = append(s.good, good{l.dir, before.commit, l.version, l.modified})
			s.says[l.dir] = &before.commit
			if r.read != nil {
				r.read[l.dir] = before
			}
		case kind != backends.NotExist && kind != backends.Changed && bad(err):
			r.log.Warn("a COMMIT does not count: restore would pass over this step", "step", l.dir, "error", err)
			s.bad[l.dir] = err
			s.later = s.later || kind == backends.Unsupported
		default:
			return s, err
		}
	}
	return s, r.name(ctx, &s)
}

// apply removes what does not stay, and uploads that nobody goes on with, of steps older
// than the newest good one. A COMMIT that cannot be read does not count, and never goes: it
// may be of a later version. The newest good one stays always, and so do
// the last ones that this process committed, whatever steps an earlier run has left. It
// returns the newest good step, -1 for none.
//
// COMMITs go first. Then it is looked anew what the others refer to, so that a step
// that was committed meanwhile keeps what it shares; see earlier.
func (r *retention) apply(ctx context.Context) (newest int64, err error) {
	if weaken.sweepYoung {
		r.abandoned = 0
	}
	s, err := r.list(ctx)
	if err != nil || len(s.good) == 0 {
		return -1, err
	}
	newest = s.good[0].commit.Step
	going := r.going(s)
	for _, l := range s.steps {
		if going[l.dir] {
			if going[l.dir], err = r.removeCommit(ctx, l, s.says[l.dir]); err != nil {
				return newest, err
			}
		}
	}
	if len(going) > 0 && !r.dry {
		if s, err = r.list(ctx); err != nil {
			return newest, err
		}
	}
	r.left = s.good
	if s.later {
		r.log.Warn("a step was committed by a later version of stager, so no data is removed that it may need")
		return newest, nil
	}
	if r.dry {
		if err := r.forgetGoing(ctx, &s, going); err != nil {
			return newest, err
		}
	}
	for _, l := range s.steps {
		if r.busy != nil && r.busy(l.step) {
			continue
		}
		if err := r.sweep(ctx, s, l, going[l.dir], l.step < newest); err != nil {
			return newest, err
		}
	}
	if r.nodes {
		err = r.sweepNodes(ctx, s)
	}
	return newest, err
}

// removing is what the log says of something that goes: a dry run removes nothing.
func (r *retention) removing(what, done string) string {
	if r.dry {
		return what + " would be " + done
	}
	return what + " is " + done
}

// removeCommit removes the COMMIT of a step, unless it is no longer the one that was
// listed. It reports whether the step goes.
func (r *retention) removeCommit(ctx context.Context, l *listed, says *Commit) (bool, error) {
	r.log.Info(r.removing("an older step", "removed"), "step", l.dir)
	if !r.dry {
		now, err := r.store.Stat(ctx, l.dir+"/"+commitKey)
		switch {
		case backends.KindOf(err) == backends.NotExist:
			return true, nil // another retention was first, and does the rest
		case err != nil:
			return false, err
		case now.Version != l.version:
			r.log.Info("a step was committed anew meanwhile, and stays", "step", l.dir)
			return false, nil
		}
		if err := r.store.Delete(ctx, l.dir+"/"+commitKey); err != nil {
			return false, err
		}
	}
	if says != nil {
		r.finish(l.dir, says)
	}
	return true, nil
}

// going are the directories whose COMMIT is removed.
func (r *retention) going(s storeListing) map[string]bool {
	going := make(map[string]bool)
	if r.keep.Last == 0 {
		return going
	}
	byCommit := slices.Clone(s.good)
	sortByCommit(byCommit, func(g good) *commitOrder { return g.order() })
	stay := r.keep.choose(byCommit)
	maps.Copy(stay, Keep{Last: 1}.choose(s.good)) // after a rollback the highest numbers are of what was given up
	for _, dir := range r.own[max(0, len(r.own)-r.keep.Last):] {
		stay[dir] = true
	}
	for _, l := range s.steps {
		switch _, unreadable := s.bad[l.dir]; {
		case !l.committed:
		case unreadable: // it may be of a later version, or be mended
		case stay[l.dir]:
		default:
			going[l.dir] = true
		}
	}
	return going
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
