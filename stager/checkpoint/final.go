package checkpoint

import (
	"context"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/detect"
)

// A provisional COMMIT becomes final when later saves confirm it: a save that has ended has the
// same files. That the next save has started proves less, because the writer may have been killed
// and restarted. The COMMIT.json is then replaced by compare-and-swap.

// recentSteps limits how many of the newest steps are compared.
const recentSteps = 20

// confirmed returns the provisional steps that are final now, by directory, each with what
// confirms it. A final step with the same files confirms a step. A step whose save has ended also
// confirms another one whose save has ended. A save has ended when a later one was committed, or
// when ended reports that the trainer exited successfully. In the latter case the last step is
// final as well, unless it lacks files that the previous one had.
func confirmed(steps []good, ended bool) map[string]string {
	steps = slices.Clone(steps)
	slices.SortStableFunc(steps, func(a, b good) int { return a.commit.Created.Compare(b.commit.Created) })
	steps = steps[max(0, len(steps)-recentSteps):]
	found := make(map[string]string)
	last := len(steps) - 1
	if last >= 0 && ended && steps[last].commit.Provisional &&
		(last == 0 || noneMissing(shapeOf(&steps[last-1].commit), shapeOf(&steps[last].commit))) {
		found[steps[last].dir] = "end"
	}
	for again := true; again; {
		again = false
		for i, g := range steps {
			if !g.commit.Provisional || found[g.dir] != "" {
				continue
			}
			for j, other := range steps {
				final := !other.commit.Provisional || found[other.dir] != ""
				if j != i && (final || i < last && j < last) && g.commit.confirmedBy(&other.commit) {
					found[g.dir], again = "as "+other.dir, true
					break
				}
			}
		}
	}
	return found
}

// noneMissing reports whether now has at least as many files of each pattern as before.
func noneMissing(before, now map[string]int) bool {
	for p, n := range before {
		if now[p] < n {
			return false
		}
	}
	return true
}

// endsInFormat are the extensions of formats in which a truncated file is detected and not
// committed.
var endsInFormat = []string{".pt", ".pth", ".ckpt", ".safetensors", ".npz", ".npy", ".h5", ".hdf5", ".keras", ".parquet", ".json", ".pkl"}

// confirmedBy reports whether other has as many files of each pattern, and the same sizes of
// files whose format records no end. All files must also have been written within about the same
// time, so that none is left from an earlier save.
func (c *Commit) confirmedBy(other *Commit) bool {
	if c.kerasBackupAlone() || c.Nodes != other.Nodes || !maps.Equal(shapeOf(c), shapeOf(other)) || c.spread() > 2*other.spread()+detect.SpreadSlack {
		return false
	}
	here, there := c.openSizes(), other.openSizes()
	return maps.EqualFunc(here, there, slices.Equal)
}

// kerasBackupAlone reports whether a step is a backup of Keras without its metadata. Keras 3.0
// writes none, and a later version may have been stopped before it wrote it, each time.
func (c *Commit) kerasBackupAlone() bool {
	has := func(name string) bool {
		return slices.ContainsFunc(c.Files, func(f File) bool { return path.Base(f.Path) == name })
	}
	return c.Step >= autoFrom && has(kerasWeights) && !has(kerasMetadata)
}

// spread returns the time between the oldest and the newest modification of the files.
func (c *Commit) spread() time.Duration {
	first, last := c.Files[0].Modified, c.Files[0].Modified
	for _, f := range c.Files {
		if f.Modified.Before(first) {
			first = f.Modified
		}
		if f.Modified.After(last) {
			last = f.Modified
		}
	}
	return last.Sub(first)
}

// openSizes returns the sizes of files whose format records no end, by pattern, ascending.
func (c *Commit) openSizes() map[string][]int64 {
	sizes := make(map[string][]int64)
	for _, f := range c.Files {
		if !slices.Contains(endsInFormat, path.Ext(f.Path)) {
			p := patternOf(f.Path)
			sizes[p] = append(sizes[p], f.Size)
		}
	}
	for _, s := range sizes {
		slices.Sort(s)
	}
	return sizes
}

// finalize replaces the COMMITs of steps that are final now, except of those that are being saved.
// Failed replacements are retried after the next save.
func (u *Uploader) finalize(ctx context.Context, steps []good, ended bool) {
	found := confirmed(steps, ended)
	for _, g := range steps {
		why, ok := found[g.dir]
		if !ok {
			continue
		}
		c := g.commit
		c.Provisional, c.Evidence = false, c.Evidence+", "+why
		if c.Group != nil {
			joined := *c.Group
			joined.Provisional = false
			c.Group = &joined
		}
		unlock, ok := u.lockUnsaved(ctx, c.Step)
		if !ok {
			continue
		}
		err := replaceCommit(ctx, u.cfg.Store, g, &c)
		unlock()
		if err == nil {
			u.log.Info("provisional checkpoint is final now", "step", c.Step, "evidence", c.Evidence)
			u.cfg.Metrics.committed.WithLabelValues(u.cfg.Output).Inc()
			u.mu.Lock()
			u.results.isFinal(c.Step, c.Evidence)
			u.noteFinalLocked(c.Step, g.dir)
			u.mu.Unlock()
			continue
		}
		switch backends.KindOf(err) {
		case backends.Exist, backends.Changed, backends.NotExist:
			u.log.Debug("a provisional checkpoint was replaced or removed in the meantime", "step", c.Step)
		default:
			u.log.Warn("cannot mark a provisional checkpoint as final", "step", c.Step, "error", err)
		}
	}
}

// replaceCommit replaces a COMMIT if it still has the version that was read.
func replaceCommit(ctx context.Context, store *backends.Store, g good, c *Commit) error {
	text, err := encode(c)
	if err != nil {
		return err
	}
	key := g.dir + "/" + commitKey
	opts := backends.CreateOptions{IfVersion: g.version}
	if store.Capabilities().Guard == backends.GuardNone || g.version == "" {
		now, err := store.Stat(ctx, key)
		if err == nil && now.Version != g.version {
			err = backends.Errorf(backends.Changed, "commit", key, "it was replaced")
		}
		if err != nil {
			return err
		}
		opts = backends.CreateOptions{}
	}
	_, err = store.PutBytes(ctx, key, text, opts)
	return err
}

// endedSteps limits how many steps the end of a run may make final. Older ones were checked after
// each save.
const endedSteps = 3

// becomeFinal makes provisional steps final when a run has ended successfully.
func (u *Uploader) becomeFinal(ctx context.Context) {
	u.mu.Lock()
	own := u.own.newest(endedSteps)
	u.mu.Unlock()
	var steps []good
	for i, dir := range own {
		if slices.Contains(own[:i], dir) {
			continue
		}
		if c, obj, err := readCommitAt(ctx, u.cfg.Store, dir); err == nil {
			steps = append(steps, good{dir, c, obj.Version, obj.ModTime})
		}
	}
	u.finalize(ctx, steps, true)
}
