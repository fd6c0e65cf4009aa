package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// CommitRequest declares that a checkpoint is complete.
type CommitRequest struct {
	Path        string // absolute, or relative to the output's directory; a directory or a file
	Step        int64  // -1: the number at the end of its name, or its time of writing, as Config.Numbers says
	SamplesSeen int64  // samples that the trainer has used since the job began; 0: unknown, or in the marker
	// AllNodes declares that the files of all nodes are complete, also those of nodes that have
	// none. Without it, each node that has files must commit its own.
	AllNodes bool
}

// Step describes a checkpoint that Commit accepted.
type Step struct {
	Step  int64  `json:"step"`
	Path  string `json:"path"` // relative to the output directory
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Commit accepts a complete checkpoint. When it returns, hard links hold the files, so the
// trainer may delete its own. Run uploads it, whatever Config.When says; Wait waits for the
// upload. The same checkpoint may be committed again.
//
// Commit fails if a file is open for writing, or if another state of the step is being uploaded.
// It fails with kind NoSpace if there is no room for a copy, which a checkpoint without a number
// in its name needs.
func (u *Uploader) Commit(ctx context.Context, r CommitRequest) (Step, error) {
	if err := ctx.Err(); err != nil {
		return Step{}, err
	}
	if u.cfg.Mode == ModeNone {
		return Step{}, backends.Errorf(backends.Invalid, "commit", r.Path, "output %s mirrors files and has no checkpoints", u.cfg.Output)
	}
	stood := u.positions.request()
	name, err := u.within(r.Path)
	if err != nil {
		return Step{}, err
	}
	u.directory.Lock()
	defer u.directory.Unlock()
	defer u.settle()
	t, err := openTree(u.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Step{}, backends.Errorf(backends.Invalid, "commit", r.Path, "there is no such file or directory")
	}
	if err != nil {
		return Step{}, err
	}
	defer t.close()
	files, marker, err := t.files()
	if err != nil {
		return Step{}, err
	}
	refuse := func(kind backends.Kind, format string, args ...any) (Step, error) {
		return Step{}, backends.Errorf(kind, "commit", r.Path, format, args...)
	}
	if len(files) == 0 {
		return refuse(backends.Invalid, "it contains no files")
	}
	if r.Step < 0 {
		step, ok := stepOf(name, t.only == "")
		switch {
		case !ok && !u.numbersByTime(name):
			return refuse(backends.Invalid, "its name does not end in a number: set the step (stager commit: --step)")
		case !ok || u.cfg.Numbers == NumberByTime:
			step = writtenStep(files)
		}
		r.Step = step
	}
	busy, _, err := t.writers(files)
	if err != nil {
		return Step{}, err
	}
	if busy != "" {
		return refuse(backends.Invalid, "%s is open for writing: close it, then commit", busy)
	}
	var said mark
	if marker != nil {
		if said, err = readMark(t.root, r.Step); err != nil {
			return refuse(backends.Invalid, "%w", err)
		}
	}
	samples := cmp.Or(r.SamplesSeen, said.SamplesSeen)
	cursors := said.at(u.reached(stood, samples))
	step := Step{r.Step, name, len(files), totalSize(files)}
	state := fingerprint(files)

	if known, err := u.accept(r, name, state); err != nil {
		return Step{}, err
	} else if known {
		return step, nil
	}
	snap := &snapshot{
		Step: r.Step, Name: name, Complete: time.Now().UTC(), Samples: samples, Metrics: said.Metrics,
		Cursors: cursors, Committed: true, Files: files, print: state, Evidence: commitEvidence,
		written: writtenAt(t.root, files),
	}
	if err := u.holdCommitted(snap, t, r.sign()); err != nil {
		return Step{}, err
	}
	logOmitted(u.log, nil, t.contentless())
	u.warnOfUnknownPositions(snap)
	u.dropEarly(name)
	if u.member != nil {
		u.scanAgain()
	}
	u.wakeSender()
	return step, nil
}

// accept records that Commit was called. It reports whether this state of the step is held or saved
// already. The error has kind Exist while another state is being uploaded.
func (u *Uploader) accept(r CommitRequest, name, state string) (known bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.explicit[name] = true
	delete(u.failed, name)
	held, done := u.snaps[r.Step], u.shipped[name]
	switch {
	case held != nil && held.print == state:
		held.Committed, held.refused, held.reported = true, nil, false // the obstacle may be gone
		held.Evidence, held.Provisional = commitEvidence, false
		if u.member != nil {
			held.Sign = max(held.Sign, r.sign())
			u.member.signedLocked(held)
		}
		u.wakeSender()
		return true, nil
	case done.Step == r.Step && done.Fingerprint == state && done.Dir != "" && (!done.Provisional || u.member != nil && done.Sign >= r.sign()):
		return true, nil // nothing more is known than when it was saved
	case held != nil && u.sending.sends(held):
		return false, backends.Errorf(backends.Exist, "commit", r.Path,
			"step %d is on its way with other content; commit this one under a step of its own, or again when that is saved", r.Step)
	}
	return false, nil
}

// holdCommitted holds a checkpoint that the trainer said is complete. sign is what it said at least.
func (u *Uploader) holdCommitted(snap *snapshot, t tree, sign group.Sign) error {
	e := entry{step: snap.Step}
	if u.member != nil {
		u.mu.Lock()
		before := u.seen[snap.Name]
		u.mu.Unlock()
		u.label(&e, before, t, snap.Files)
		if e.view == beforeRun { // the caller knows which save it belongs to
			e.view = u.member.at(time.Now())
		}
		sign = max(sign, u.saidSign(t, snap.Name, snap.Files))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.member != nil {
		u.member.adoptLocked(snap, &e, sign)
	}
	if err := u.acquireLocked(snap); err != nil {
		return err
	}
	delete(u.seen, snap.Name)
	return nil
}

// sign returns what the request proves at least, with several nodes.
func (r CommitRequest) sign() group.Sign {
	if r.AllNodes {
		return group.SignJob
	}
	return group.SignOwn
}

// commitEvidence is the evidence of a checkpoint that was committed explicitly.
const commitEvidence = "commit"

// within returns p relative to the output directory.
func (u *Uploader) within(p string) (string, error) {
	name := filepath.Clean(p)
	if filepath.IsAbs(name) {
		rel, err := filepath.Rel(u.cfg.Dir, name)
		if err != nil {
			return "", err
		}
		name = rel
	}
	if name = filepath.ToSlash(name); !filepath.IsLocal(name) || name == "." || ours(name) {
		return "", backends.Errorf(backends.Invalid, "commit", p, "a checkpoint lies within %s, the directory of output %s", u.cfg.Dir, u.cfg.Output)
	}
	return path.Clean(name), nil
}
