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

// Keep selects the committed steps to keep. The zero value keeps all.
type Keep struct {
	Last    int    // the newest n; 0: all
	Every   int64  // and those whose number is divisible by it; 0: none
	Best    int    // and the n best by Metric, among steps whose marker recorded it
	Metric  string // name in the marker
	Highest bool   // the highest value is best; else the lowest
}

// good is a step with a valid COMMIT.
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

// choose returns the directories of the steps to keep. steps must be in commit order, newest
// first. It always keeps the newest final step, because restore prefers it to provisional ones.
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

// PruneConfig configures Prune.
type PruneConfig struct {
	Store *backends.Store // the destination
	Keep  Keep
	// Abandoned is the age at which an unfinished write counts as abandoned. Use 0 only when
	// nobody else writes to the destination.
	Abandoned time.Duration
	DryRun    bool         // report, but remove nothing
	Foreign   Foreign      // "": ForeignKeep
	Log       *slog.Logger // nil: silent
}

// Pruned reports what Prune removed of one step.
type Pruned struct {
	Step      int64  `json:"step"`
	Dir       string `json:"dir"`
	Committed bool   `json:"committed"` // false: an orphan or an incomplete upload
	// Unfinished marks incomplete writes, which no List returns: files under temporary names, or
	// multipart uploads. Outside all step directories, Step is -1 and Dir is empty, or "nodes"
	// for records of former nodes, which are not Unfinished.
	Unfinished bool `json:"unfinished,omitempty"`
	// Foreign marks a multipart upload of Key that another program may own. Kept reports that it
	// is only listed.
	Foreign bool   `json:"foreign,omitempty"`
	Kept    bool   `json:"kept,omitempty"`
	Key     string `json:"key,omitempty"`

	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Prune removes the steps that Keep does not select. It also removes
//
//   - uncommitted uploads of steps older than the newest committed one, if nothing was added
//     to them for Abandoned;
//   - records of nodes that no step and no live node needs.
//
// It keeps everything that a kept step refers to, the newest valid step, and objects that stager
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
		cfg.Log.Warn("cannot look for data left by killed uploads", "error", err)
		err = nil
	}
	return r.removed, err
}

// retention decides which steps of a destination to remove, and removes them.
type retention struct {
	store *backends.Store
	keep  Keep
	// committing reports steps that this process may commit, and that are not in own yet. own
	// returns the directories that it has committed, oldest first. nil: none.
	committing func(int64) bool
	own        func() []string
	busy       func(int64) bool // reports steps whose data stays; nil: none
	// lock excludes other changes of a step's COMMIT. It fails if the step is being saved. nil:
	// there are none.
	lock func(ctx context.Context, step int64) (unlock func(), ok bool)
	// urgent is for the requests that are made with the lock held, which must not give way to an upload
	// that waits for it; nil: store.
	urgent *backends.Store
	kept   func(steps []good)  // is called with the steps that are kept, newest first; may be nil
	width  int                 // removals at once; 0: as the store allows
	read   map[string]readOnce // cache of COMMITs by directory; may be nil
	nodes  bool                // also remove records of former nodes
	dry    bool
	log    *slog.Logger

	ids       map[string]bool // uploads that nobody else resumes; see sweepOrphans
	abandoned time.Duration
	foreign   Foreign
	uploads   *recordedUploads // read on first use
	alive     map[string]bool  // records of uploads that a sweep found, by key
	now       time.Time        // latest known time of the store's clock; see removal.go
	finished  finished

	removed []Pruned
}

// readOnce is a COMMIT with the version that was read.
type readOnce struct {
	version backends.Version
	commit  Commit
}

// storeListing is the content of a destination.
type storeListing struct {
	steps []*listed          // newest first
	good  []good             // newest first
	bad   map[string]error   // directories with an invalid COMMIT
	later bool               // one COMMIT is of a later version, and may refer to anything
	named map[string]bool    // keys that a COMMIT or an upload in progress refers to
	says  map[string]*Commit // the valid ones, by directory
}

// maxListTries is the maximum number of listings when a destination changes meanwhile.
const maxListTries = 10

// list lists the destination. It reads the COMMITs and the records of uploads that may still be
// committed. When one of them disappears meanwhile, it starts again: a newer one may refer to the
// same data.
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
			r.log.Warn("a COMMIT is not valid, so restore would skip this step", "step", l.dir, "error", err)
			s.bad[l.dir] = err
			s.later = s.later || kind == backends.Unsupported
		default:
			return s, err
		}
	}
	return s, r.name(ctx, &s)
}

// apply removes the steps that Keep does not select, and abandoned uploads of steps older than
// the newest valid one. It returns the number of that step, or -1 for none.
//
// It never removes a COMMIT that cannot be read, since it may be of a later version. It always
// keeps the newest valid step and the last ones that this process committed, whatever steps an
// earlier run left.
//
// It removes COMMITs first. Then it lists again what the others refer to, so that a step
// committed meanwhile keeps the data that it shares; see earlier.
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
	if r.kept != nil {
		r.kept(s.good)
	}
	if s.later {
		r.log.Warn("a step was committed by a later version of stager, keeping all data that it may need")
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

// removing returns the log message for a removal. A dry run removes nothing.
func (r *retention) removing(what, done string) string {
	if r.dry {
		return what + " would be " + done
	}
	return what + " is " + done
}

// removeCommit removes the COMMIT of a step, unless it was replaced since the listing. It reports
// whether the step is removed.
func (r *retention) removeCommit(ctx context.Context, l *listed, says *Commit) (bool, error) {
	store := r.store
	if r.lock != nil {
		unlock, ok := r.lock(ctx, l.step)
		if !ok {
			return false, ctx.Err()
		}
		defer unlock()
		store = r.urgent
		if slices.Contains(r.lastOwn(), l.dir) { // committed since the listing
			return false, nil
		}
	}
	r.log.Info(r.removing("an older step", "removed"), "step", l.dir)
	if !r.dry {
		now, err := store.Stat(ctx, l.dir+"/"+commitKey)
		switch {
		case backends.KindOf(err) == backends.NotExist:
			return true, nil // another retention removed it, and removes the rest
		case err != nil:
			return false, err
		case now.Version != l.version:
			r.log.Info("step was committed again in the meantime, keeping it", "step", l.dir)
			return false, nil
		}
		if err := store.Delete(ctx, l.dir+"/"+commitKey); err != nil {
			return false, err
		}
	}
	if says != nil {
		r.finish(l.dir, says)
	}
	return true, nil
}

// going returns the directories whose COMMIT is to be removed.
func (r *retention) going(s storeListing) map[string]bool {
	going := make(map[string]bool)
	if r.keep.Last == 0 {
		return going
	}
	byCommit := slices.Clone(s.good)
	sortByCommit(byCommit, func(g good) *commitOrder { return g.order() })
	stay := r.keep.choose(byCommit)
	maps.Copy(stay, Keep{Last: 1}.choose(s.good)) // after a rollback, the highest numbers belong to the abandoned run
	if r.committing != nil {                      // asked before own, because a step moves from one to the other
		for _, l := range s.steps {
			stay[l.dir] = stay[l.dir] || r.committing(l.step)
		}
	}
	for _, dir := range r.lastOwn() {
		stay[dir] = true
	}
	for _, l := range s.steps {
		switch _, unreadable := s.bad[l.dir]; {
		case !l.committed:
		case unreadable: // it may be of a later version, or be repaired
		case stay[l.dir]:
		default:
			going[l.dir] = true
		}
	}
	return going
}

// lastOwn returns the last steps that this process committed, which stay.
func (r *retention) lastOwn() []string {
	if r.own == nil {
		return nil
	}
	own := r.own()
	return own[max(0, len(own)-r.keep.Last):]
}

// remove removes objects, several at once.
func (r *retention) remove(ctx context.Context, keys ...string) error {
	if r.dry {
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(r.store, r.width))
	for _, key := range keys {
		g.Go(func() error { return r.store.Delete(gctx, key) })
	}
	return g.Wait()
}
