package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/stager-dev/stager/backends"
)

// The functions of this file decide as Restore, Push and PushCheckpoint do, and write nothing.

// RehearseRestore returns what Restore would restore if no byte is damaged: the step that it
// prefers, of which all files are in the store. It reads no file and does not look at Dir. Among
// does not count: nodes agree by writing to the store.
func RehearseRestore(ctx context.Context, cfg RestoreConfig) (Restored, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	steps, err := listSteps(ctx, cfg.Store)
	if err != nil {
		return Restored{}, err
	}
	var of []*listed
	uncommitted := 0
	for _, l := range steps {
		if !l.committed {
			uncommitted++
		}
		if cfg.Step < 0 || l.step == cfg.Step {
			of = append(of, l)
		}
	}
	var passed []FellBack
	for c, err := range preferred(ctx, cfg.Store, of, cfg.AllowProvisional || cfg.Step >= 0) {
		if err != nil {
			return Restored{}, err
		}
		commit, err := completeIn(ctx, cfg, c)
		if err == nil {
			return restoredOf(cfg, c, commit, append(passed, skippedStep(cfg, c)...)), nil
		}
		if !bad(err) {
			return Restored{}, err
		}
		cfg.Log.Warn("a checkpoint is damaged, trying the one before it", "step", c.dir, "error", err)
		passed = append(passed, FellBack{c.step, cfg.Store.Sub(c.dir).Name(), err.Error(), backends.KindOf(err)})
	}
	return Restored{}, noneGood(cfg, passed, uncommitted)
}

// completeIn returns the COMMIT of a step with the files for cfg.Node if the store has them all.
func completeIn(ctx context.Context, cfg RestoreConfig, c choice) (Commit, error) {
	if c.err != nil {
		return Commit{}, c.err
	}
	commit := *c.commit
	sizes, err := sizesOf(ctx, cfg.Store, c.dir, &commit)
	if err != nil {
		return Commit{}, err
	}
	if err := commit.choose(cfg.Node); err != nil {
		return Commit{}, err
	}
	return commit, commit.missing(c.dir, sizes)
}

// RehearsePush returns what Push would send. It reads the files of which the store has a checksum
// and does not use Memory. Two files that the store keeps under one name both count.
func RehearsePush(ctx context.Context, cfg PushConfig) (PushSummary, error) {
	root, tree, err := openPush(cfg.Path)
	if err != nil {
		return PushSummary{}, err
	}
	defer root.Close() // opened for reading
	p := &pusher{cfg: cfg, root: root}
	p.summary.NotSaved, p.summary.Empty = tree.omitted, tree.empty
	files := p.nameable(tree.files)
	if p.there, err = mirroredOf(ctx, cfg.Store, files); err != nil {
		return p.summary, err
	}
	if err := forEach(ctx, parallel(cfg.Store, cfg.Parallel), files, p.compare); err != nil {
		return p.summary, err
	}
	return p.summary, omittedErr(p.summary.NotSaved)
}

// compare counts a file as sent or as already in the store.
func (p *pusher) compare(ctx context.Context, f plain) error {
	known, err := mirrors(ctx, p.cfg.Store, p.root, nil, f, p.there[f.Path])
	if errors.Is(err, fs.ErrNotExist) && gone(p.root, f) {
		p.omit(f.Path, "it was removed since the directory was listed")
		return nil
	}
	if reason, ok := unreadable(err); ok {
		p.omit(f.Path, reason)
		return nil
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known {
		p.summary.Unchanged++
	} else {
		p.summary.Files, p.summary.Bytes = p.summary.Files+1, p.summary.Bytes+f.Size
	}
	return nil
}

// RehearsePushCheckpoint returns the step that PushCheckpoint would commit, and its directory. The
// files have no digests unless there is true: the store has this checkpoint already.
func RehearsePushCheckpoint(ctx context.Context, cfg PushCheckpointConfig) (commit Commit, dir string, there bool, err error) {
	s, c, err := cfg.job()
	if err != nil {
		return Commit{}, "", false, err
	}
	defer c.tree.close()
	if err := s.store.CheckKeys(pathsOf(c.files)); err != nil {
		return Commit{}, "", false, &unholdableError{err}
	}
	c.quiet = true // place then makes no provisional COMMIT final
	at, err := s.place(ctx, c)
	if err != nil {
		return Commit{}, "", false, err
	}
	if at.found != nil {
		return *at.found, at.dir, true, nil
	}
	own := part{Step: c.step, SamplesSeen: c.samples, Evidence: c.because, Completed: c.completed, Data: dataDir + "/" + c.id}
	for _, f := range c.files {
		own.Files = append(own.Files, File{Path: f.Path, Size: f.Size, Mode: f.Mode, Modified: f.modified()})
	}
	return s.single(at.dir, own), at.dir, false, nil
}
