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

// Newest is the Step of a RestoreConfig that asks for the newest good one.
const Newest = -1

// AnyNode is the Node of a RestoreConfig that refuses to choose between nodes.
const AnyNode = -1

// NodeError says that the files of a step cannot be chosen for a node.
type NodeError struct{ Reason string }

func (e *NodeError) Error() string { return e.Reason }

// ExitCode is EX_CONFIG: trying again does not help.
func (e *NodeError) ExitCode() int { return 78 }

// RestoreConfig says what Restore brings back.
type RestoreConfig struct {
	Store    *backends.Store // the destination that an Uploader had
	Dir      string          // where the files go; made if missing
	Step     int64           // Newest, or this one and no other
	Node     int             // whose file it is where several nodes have another one under one path; AnyNode: there must be none
	Parallel int             // ranges at once; 0: what the store likes
	Write    disk.Write      // how large files get to the disk; empty: as is fastest there
	Log      *slog.Logger    // nil: silent
	// Overwrite replaces and removes also files that no restore wrote, or that changed
	// since.
	Overwrite bool
	// AllowProvisional restores the newest step also when only a quiet period says that it
	// is complete, and it has other files than the final ones before it.
	AllowProvisional bool
	// Among says which node of a job this is. Several nodes restore the step that they agree
	// on.
	Among Among
	// Progress is told of bytes, one call at a time. A step that is passed over
	// begins anew at 0. May be nil.
	Progress func(done, total int64)

	hook func(at string) error // tests stop or end the restore at each step
}

// Restored is what Restore did. It stands in Dir as RESTORED.json, which is written
// last: while it is there, the files beside it are all of that step.
type Restored struct {
	Step        int64  `json:"step"`
	Source      string `json:"source"`
	SamplesSeen int64  `json:"samplesSeen,omitempty"`
	// Cursors are where the inputs stood, of each those of all nodes, as a window takes
	// them to go on there.
	Cursors      map[string][]json.RawMessage `json:"cursors,omitempty"`
	Restored     time.Time                    `json:"restored"`
	Bytes        int64                        `json:"bytes"`
	Files        []string                     `json:"files"`
	FellBackFrom []FellBack                   `json:"fellBackFrom,omitempty"` // newer steps that are not good, or provisional
	Evidence     string                       `json:"evidence,omitempty"`     // what said that it is complete
	Provisional  bool                         `json:"provisional,omitempty"`  // only a quiet period did
	Agreement    int                          `json:"agreement,omitempty"`    // of all nodes of the job; 0: nobody agreed
}

// FellBack is a committed step that was passed over.
type FellBack struct {
	Step   int64  `json:"step"`
	Source string `json:"source"`
	Reason string `json:"reason"`
	kind   backends.Kind
}

// Restore brings the newest good checkpoint's files to Dir, checked byte for byte.
// A step that is damaged is passed over and told of, and so is one that is provisional and
// has other files than the newest final one; a store that cannot be reached
// is an error, since a newer step might be good.
//
// The files come to Dir only after all of them have been checked: by one rename
// where there was no Dir, else one by one beside what is there. Files of the same
// name are replaced, those of an earlier Restore that the step does not have are
// removed: both only when they are as that Restore left them, or with Overwrite; else
// the error is of kind Exist, and Dir stays as it was. No symbolic link below Dir is
// followed. A kill before that leaves Dir as it was; a kill in between leaves it
// without RESTORED.json, and the next Restore finishes the work first.
//
// One Restore at a time works on Dir: the error of another one is a *disk.BusyError.
//
// Its error is of kind NotExist when no step is committed ([backends.Empty] when any
// would have done), Corrupt when none of
// those that are is good, and NoSpace, before the first byte, when the step does not
// fit beside what is there.
func Restore(ctx context.Context, cfg RestoreConfig) (Restored, error) {
	done, err := restoreTo(ctx, cfg)
	if err != nil && isLocal(err) && !strings.Contains(err.Error(), cfg.Dir) {
		err = fmt.Errorf("restore to %s: %w", cfg.Dir, err) // paths of a Root are relative
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
		cfg.Log.Info("the destination changed under way, listing it anew", "error", again)
		why = again
	}
	return Restored{}, &backends.Error{
		Op: "restore", Store: cfg.Store.Name(), Kind: backends.Changed,
		Err: fmt.Errorf("the destination changed during each of %d tries; try again when fewer processes write and remove there: %w", maxListings, why),
	}
}

// maxListings is how often Restore begins anew when steps come or go under way.
const maxListings = 20

// restoreListed restores the newest good step of one listing. again says why the listing
// does not hold any longer, so that what is missing of it means nothing.
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
		cfg.Log.Warn("a checkpoint is not good, the one before is tried", "step", c.dir, "error", err)
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

// restoredOf reports what is restored of a step.
func restoredOf(cfg RestoreConfig, c choice, commit Commit, passed []FellBack) Restored {
	done := Restored{
		Step: c.step, Source: cfg.Store.Sub(c.dir).Name(), SamplesSeen: commit.SamplesSeen, Cursors: commit.Cursors, Restored: time.Now().UTC(),
		Bytes: commit.Bytes, FellBackFrom: passed, Evidence: commit.Evidence, Provisional: commit.Provisional,
	}
	for _, f := range commit.Files {
		done.Files = append(done.Files, f.Path)
	}
	if commit.Provisional {
		cfg.Log.Warn("nothing but a quiet period says that this checkpoint is complete", "step", c.step, "evidence", commit.Evidence)
	}
	return done
}

// skippedStep are the newer provisional steps that restore does not prefer.
func skippedStep(cfg RestoreConfig, c choice) []FellBack {
	var passed []FellBack
	for _, p := range c.passed {
		reason := fmt.Sprintf("it is provisional (%s), and has other files than step %d before it; --allow-provisional restores it", p.commit.Evidence, c.step)
		cfg.Log.Warn("a newer checkpoint is provisional and has other files than the ones before it, so it is passed over; --allow-provisional restores it",
			"step", p.dir, "evidence", p.commit.Evidence)
		passed = append(passed, FellBack{p.step, cfg.Store.Sub(p.dir).Name(), reason, backends.Changed})
	}
	return passed
}

// stillListed reports whether another listing has the same COMMITs in the directories of those
// of steps that were read, and no new ones, and whatever was in the directory dir;
// "" is that of the last one. With whole the others must be the same, too.
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
		return true, nil // nobody looked at it
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

// noneGood says why nothing was restored.
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

// isLocal tells whether an error is of the disk here.
func isLocal(err error) bool {
	var local *backends.LocalError
	var p *fs.PathError
	var l *os.LinkError
	return errors.As(err, &local) || errors.As(err, &p) || errors.As(err, &l)
}

// fetch brings all files of a step below the site's workshop, checked.
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
	defer root.Close() // what counts was synced
	var writing disk.Writing
	// Files are synced, but read at once, too: those that the page cache took need not be
	// read from the disk.
	err = writing.Set(root.Name(), cfg.Write, false, func(err error) {
		cfg.Log.Warn("the file system does not take direct writes, so files are written through the page cache", "dir", cfg.Dir, "error", err)
	})
	if err != nil {
		return Commit{}, err
	}
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

// choose leaves one file a path: this node's, or that of the first that has one. It returns
// a *NodeError when the step has no such node, or when nodes differ and none is given.
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
