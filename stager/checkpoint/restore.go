package checkpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// Newest is the Step of a RestoreConfig that selects the newest valid checkpoint.
const Newest = -1

// AnyNode is the Node of a RestoreConfig that refuses to choose between nodes.
const AnyNode = -1

// NodeError reports that the files of a step cannot be chosen for a node.
type NodeError struct{ Reason string }

func (e *NodeError) Error() string { return e.Reason }

// RestoreConfig configures Restore.
type RestoreConfig struct {
	Store    *backends.Store // the destination of the Uploader
	Dir      string          // target directory; created if missing
	Step     int64           // Newest, or exactly this step
	Node     int             // whose file to take where nodes saved different files under one path; AnyNode: such a step is an error
	Parallel int             // ranges at once; 0: the store's default
	Write    disk.Write      // how large files are written; empty: the fastest way on this file system
	Log      *slog.Logger    // nil: silent
	// Overwrite also replaces and removes files that no restore wrote, or that changed since.
	Overwrite bool
	// AllowProvisional restores the newest step even if only a quiet period or the next checkpoint indicates that it is
	// complete and it has other files than the final steps before it.
	AllowProvisional bool
	// Among identifies this node within a job. The nodes of a job restore the step that they
	// agree on.
	Among Among
	// Progress receives byte counts, never concurrently. It restarts at 0 when a step is skipped.
	// May be nil.
	Progress func(done, total int64)

	hook func(at string) error // tests stop or kill the restore at each step
}

// Restored reports what Restore did. Dir contains it as RESTORED.json, which is written last:
// while that file exists, the restored files beside it all belong to that step.
type Restored struct {
	Step        int64  `json:"step"`
	Source      string `json:"source"`
	SamplesSeen int64  `json:"samplesSeen,omitempty"`
	// Cursors are the input positions of all nodes, by input. A window accepts them to continue
	// from there.
	Cursors      map[string][]json.RawMessage `json:"cursors,omitempty"`
	Restored     time.Time                    `json:"restored"`
	Bytes        int64                        `json:"bytes"`
	Files        []string                     `json:"files"`
	FellBackFrom []FellBack                   `json:"fellBackFrom,omitempty"` // newer steps that are invalid or provisional
	Evidence     string                       `json:"evidence,omitempty"`     // what indicated that it is complete
	Provisional  bool                         `json:"provisional,omitempty"`  // only a quiet period or the next checkpoint did
	Agreement    int                          `json:"agreement,omitempty"`    // number of the agreement between the nodes of the job; 0: none
}

// FellBack is a committed step that Restore skipped.
type FellBack struct {
	Step   int64  `json:"step"`
	Source string `json:"source"`
	Reason string `json:"reason"`
	kind   backends.Kind
}

// Restore writes the files of the newest valid checkpoint to Dir and verifies every byte. It
// skips and reports a damaged step. It also skips a provisional step that has other files than
// the newest final one. An unreachable store is an error, since a newer step might be valid.
//
// Restore moves files to Dir only after all of them are verified. If Dir does not exist, it
// renames the whole directory once; otherwise it renames file by file. It replaces files of the
// same name and removes files of an earlier Restore that the step does not have. It does so only
// if they are unchanged since that Restore, or with Overwrite; else the error is of kind Exist
// and Dir is unchanged. It follows no symbolic link below Dir. A kill before the renames leaves
// Dir unchanged. A kill between them leaves Dir without RESTORED.json, and the next Restore
// completes the work first.
//
// Only one Restore at a time works on Dir. A second one fails with a *disk.BusyError.
//
// The error is of kind NotExist when no step is committed ([backends.Empty] when any step was
// acceptable), and Corrupt when no committed step is valid. It is of kind NoSpace, before the
// first byte is written, when the step does not fit.
func Restore(ctx context.Context, cfg RestoreConfig) (Restored, error) {
	done, err := restoreTo(ctx, cfg)
	if err != nil && isLocal(err) && !strings.Contains(err.Error(), cfg.Dir) {
		err = fmt.Errorf("restore to %s: %w", cfg.Dir, err) // paths in errors of a Root are relative
	}
	return done, err
}

func restoreTo(ctx context.Context, cfg RestoreConfig) (Restored, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	site, err := openSite(cfg)
	if err != nil {
		return Restored{}, err
	}
	defer func() {
		if site != nil {
			site.close()
		}
	}()
	if cfg.Among.agrees() {
		done, alone, err := restoreAgreed(ctx, cfg, &site)
		if err != nil || alone == "" {
			return done, err
		}
		cfg.Log.Warn("the nodes of the job did not agree on what to restore, so each takes the newest good step that it finds; give all nodes one --step",
			"nodes", cfg.Among.Count, "reason", alone)
	}
	var why error
	for range maxListings {
		done, again, err := restoreListed(ctx, cfg, site)
		if again == nil || weaken.trustListing {
			return done, err
		}
		cfg.Log.Info("destination changed during the restore, listing it again", "error", again)
		why = again
	}
	return Restored{}, &backends.Error{
		Op: "restore", Store: cfg.Store.Name(), Kind: backends.Changed,
		Err: fmt.Errorf("the destination changed during each of %d tries; try again when fewer processes write and remove there: %w", maxListings, why),
	}
}

// maxListings is the maximum number of listings when steps appear or disappear meanwhile.
const maxListings = 20

// restoreListed restores the newest valid step of one listing. again is not nil when the listing
// is stale, so that missing objects prove nothing.
func restoreListed(ctx context.Context, cfg RestoreConfig, site *site) (done Restored, again, err error) {
	steps, err := listSteps(ctx, cfg.Store)
	if err != nil {
		return Restored{}, nil, err
	}
	var passed []FellBack
	uncommitted := 0
	for _, l := range steps {
		if !l.committed {
			uncommitted++
		}
	}
	of := slices.DeleteFunc(slices.Clone(steps), func(l *listed) bool { return cfg.Step >= 0 && l.step != cfg.Step })
	for c, err := range preferred(ctx, cfg.Store, of, cfg.AllowProvisional || cfg.Step >= 0) {
		if err != nil {
			return Restored{}, nil, err
		}
		commit, err := fetch(ctx, cfg, c, site)
		if err == nil {
			done := restoredOf(cfg, c, commit, append(passed, skippedStep(cfg, c)...))
			return done, nil, site.publish(ctx, done, commit.Files)
		}
		if !bad(err) || isLocal(err) {
			return Restored{}, nil, err
		}
		if stands, lerr := stillListed(ctx, cfg.Store, steps, c.dir, false); lerr != nil {
			return Restored{}, nil, lerr
		} else if !stands && !weaken.trustListing {
			return Restored{}, err, err
		}
		cfg.Log.Warn("a checkpoint is damaged, trying the one before it", "step", c.dir, "error", err)
		passed = append(passed, FellBack{c.step, cfg.Store.Sub(c.dir).Name(), err.Error(), backends.KindOf(err)})
	}
	err = noneGood(cfg, passed, uncommitted)
	if stands, lerr := stillListed(ctx, cfg.Store, steps, "", true); lerr != nil {
		return Restored{}, nil, lerr
	} else if !stands {
		return Restored{}, err, err
	}
	return Restored{}, nil, err
}

// restoredOf returns the report for a restored step.
func restoredOf(cfg RestoreConfig, c choice, commit Commit, passed []FellBack) Restored {
	done := Restored{
		Step: c.step, Source: cfg.Store.Sub(c.dir).Name(), SamplesSeen: commit.SamplesSeen, Cursors: commit.Cursors, Restored: time.Now().UTC(),
		Bytes: commit.Bytes, FellBackFrom: passed, Evidence: commit.Evidence, Provisional: commit.Provisional,
	}
	for _, f := range commit.Files {
		done.Files = append(done.Files, f.Path)
	}
	if commit.Provisional {
		cfg.Log.Warn("only a quiet period indicates that this checkpoint is complete", "step", c.step, "evidence", commit.Evidence)
	}
	return done
}

// skippedStep returns the newer provisional steps that restore does not prefer.
func skippedStep(cfg RestoreConfig, c choice) []FellBack {
	var passed []FellBack
	for _, p := range c.passed {
		reason := fmt.Sprintf("it is provisional (%s), and has other files than step %d before it; --allow-provisional restores it", p.commit.Evidence, c.step)
		cfg.Log.Warn("skipping a newer checkpoint, which is provisional and has other files than the ones before it; to restore it, use --allow-provisional",
			"step", p.dir, "evidence", p.commit.Evidence)
		passed = append(passed, FellBack{p.step, cfg.Store.Sub(p.dir).Name(), reason, backends.Changed})
	}
	return passed
}

// stillListed reports whether a second listing confirms steps. It compares the COMMITs that were
// read, requires that there are no new ones, and compares the objects in dir ("" is the last
// committed step). With whole, it compares all COMMITs.
func stillListed(ctx context.Context, store *backends.Store, steps []*listed, dir string, whole bool) (bool, error) {
	now, err := listSteps(ctx, store)
	if err != nil {
		return false, err
	}
	uncommitted := func(l *listed) bool { return !l.committed }
	before, after := slices.DeleteFunc(slices.Clone(steps), uncommitted), slices.DeleteFunc(now, uncommitted)
	there := make(map[string]*listed, len(after))
	for _, l := range after {
		there[l.dir] = l
	}
	same := 0
	for _, l := range before {
		n := there[l.dir]
		if n != nil {
			same++
		}
		if (n == nil || n.version != l.version) && (whole || l.commit != nil || l.commitErr != nil) {
			return false, nil
		}
	}
	if same < len(after) {
		return false, nil
	}
	if len(before) == 0 {
		return true, nil
	}
	at := len(before) - 1
	if dir != "" {
		at = slices.IndexFunc(before, func(l *listed) bool { return l.dir == dir })
	}
	versions := make(map[string]backends.Version)
	if there[before[at].dir] == nil {
		return true, nil // nobody read it
	}
	for _, obj := range there[before[at].dir].objects {
		versions[obj.Key] = obj.Version
	}
	for _, obj := range before[at].objects {
		if version, ok := versions[obj.Key]; !ok || version != obj.Version {
			return false, nil
		}
	}
	return true, nil
}

// noneGood returns an error with the reasons why nothing was restored.
func noneGood(cfg RestoreConfig, passed []FellBack, uncommitted int) error {
	e := &backends.Error{Op: "restore", Store: cfg.Store.Name(), Kind: backends.NotExist}
	what := "there is no committed checkpoint"
	if cfg.Step >= 0 {
		what = fmt.Sprintf("step %d is not committed", cfg.Step)
	}
	if len(passed) > 0 {
		e.Kind, what = backends.Corrupt, "no committed checkpoint is good"
		if !slices.ContainsFunc(passed, func(p FellBack) bool { return p.kind != backends.Unsupported }) {
			e.Kind, what = backends.Unsupported, "every committed checkpoint is of a later version of stager"
		}
	}
	errs := []error{errors.New(what)}
	if cfg.Step < 0 && len(passed) == 0 {
		errs[0] = backends.InWords(what, backends.ErrNothing)
	}
	for _, p := range passed {
		errs = append(errs, fmt.Errorf("step %d: %s", p.Step, p.Reason))
	}
	if uncommitted > 0 {
		what := "steps without a COMMIT.json were"
		if uncommitted == 1 {
			what = "step without a COMMIT.json was"
		}
		errs = append(errs, fmt.Errorf("%d %s ignored", uncommitted, what))
	}
	e.Err = errors.Join(errs...)
	return e
}

// isLocal reports whether an error is one of the local disk.
func isLocal(err error) bool {
	var local *backends.LocalError
	var p *fs.PathError
	var l *os.LinkError
	return errors.As(err, &local) || errors.As(err, &p) || errors.As(err, &l)
}

// fetch downloads and verifies all files of a step below the site's work directory.
func fetch(ctx context.Context, cfg RestoreConfig, c choice, site *site) (Commit, error) {
	if c.err != nil {
		return Commit{}, c.err
	}
	commit, dir := *c.commit, c.dir
	there, err := objectsOf(ctx, cfg.Store, dir, &commit)
	if err != nil {
		return Commit{}, err
	}
	if err := commit.choose(cfg.Node); err != nil {
		return Commit{}, err
	}
	for _, f := range commit.Files {
		key := commit.key(dir, f)
		if obj, ok := there[key]; !ok || obj.Size != f.Size {
			return Commit{}, missingFile(key, f)
		}
	}
	if _, err := site.list(ctx, commit.Files, true); err != nil {
		return Commit{}, err
	}
	root, err := site.workshop(commit.Bytes)
	if err != nil {
		return Commit{}, err
	}
	defer root.Close() // all relevant data was synced
	var writing disk.Writing
	// Files are synced but also read at once. Pages in the page cache save reads from the disk.
	err = writing.Set(root.Name(), cfg.Write, false, func(err error) {
		cfg.Log.Warn("file system does not support direct writes, using the page cache", "dir", cfg.Dir, "error", err)
	})
	if err != nil {
		return Commit{}, err
	}
	writing.KeepBusy()
	progress := newProgress(cfg.Progress, commit.Bytes)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(cfg.Store, cfg.Parallel))
	for _, f := range commit.Files {
		if gctx.Err() != nil {
			break
		}
		if err := fetchFile(gctx, g, cfg.Store, there[commit.key(dir, f)], f, root, &writing, progress.add); err != nil {
			return Commit{}, errors.Join(err, g.Wait())
		}
	}
	if err := cmp.Or(g.Wait(), context.Cause(ctx)); err != nil {
		return Commit{}, err
	}
	return commit, syncAll(root)
}

// choose keeps one file per path: that of the given node, or else that of the first node that has
// it. It returns a *NodeError when the step has no such node, or when nodes differ and none is
// given.
func (c *Commit) choose(node int) error {
	if node >= c.Nodes && c.Nodes > 1 {
		return &NodeError{fmt.Sprintf("step %d was saved by %d nodes, counted from 0, and has no node %d: name one of them by --node, or none", c.Step, c.Nodes, node)}
	}
	byPath := make(map[string]int)
	var files []File
	for _, f := range c.Files {
		i, ok := byPath[f.Path]
		switch {
		case !ok:
			byPath[f.Path] = len(files)
			files = append(files, f)
		case f.Node == node:
			files[i] = f
		case node == AnyNode && (files[i].Digest != f.Digest || files[i].Size != f.Size):
			return &NodeError{fmt.Sprintf("nodes %d and %d of step %d saved different files as %s: choose one by --node", files[i].Node, f.Node, c.Step, f.Path)}
		}
	}
	c.Files, c.Bytes = files, 0
	for _, f := range files {
		c.Bytes += f.Size
	}
	return c.apart()
}

// apart returns a *NodeError when a path is a file of one node and a directory of another.
func (c *Commit) apart() error {
	files := make(map[string]int, len(c.Files))
	for _, f := range c.Files {
		files[f.Path] = f.Node
	}
	for _, f := range c.Files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if node, ok := files[dir]; ok {
				return &NodeError{fmt.Sprintf("in step %d %s is a file of node %d and a directory of node %d: they cannot be restored to one place", c.Step, dir, node, f.Node)}
			}
		}
	}
	return nil
}
