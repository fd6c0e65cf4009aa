package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/internal/records"
)

// COMMIT.json is created if there is none. Otherwise it is replaced by compare-and-swap against
// the version that was read. If that fails, another writer committed this step first, and the decision is made
// again from what is there now. After the commit, and before success is reported, the data is
// listed again. What another process removed meanwhile is sent again.

// Limits on how often one call of ship decides again, and sends again.
const (
	maxTaken    = 20
	maxVanished = 3
)

var (
	// errStepExists reports that COMMIT.json has changed since it was read.
	errStepExists = errors.New("another writer committed this step first")
	// errVanished reports that uploaded data is missing that COMMIT.json names or was about to
	// name.
	errVanished = errors.New("another process removed data of this upload")
)

// spot is the destination of a checkpoint, and the state of its COMMIT.json.
type spot struct {
	dir     string
	replace bool            // a COMMIT.json exists and may be replaced
	over    backends.Object // that COMMIT.json
	former  *Commit         // its content; nil when it is invalid
	found   *Commit         // has the same bytes and all its data: there is nothing to do
}

// delivery is what ship has uploaded so far.
type delivery struct {
	dir  string // the step's directory; empty: nothing
	part part
}

// ship uploads a checkpoint and commits it. It returns the COMMIT that makes the step exist, and
// its directory. That COMMIT may belong to another upload of the same bytes.
//
// What it leaves after an error is not committed. A later call with the same ID resumes from it;
// any other call removes it. A file is sent only in the state that c.files lists.
func (s *shipper) ship(ctx context.Context, c uploadJob) (Commit, string, error) {
	if err := s.store.CheckKeys(pathsOf(c.files)); err != nil {
		return Commit{}, "", &unholdableError{err}
	}
	var sent delivery
	for taken, vanished := 0, 0; ; {
		at, err := s.place(ctx, c)
		if over := at.found != nil || errors.Is(err, errConflict) || err == nil && at.dir != sent.dir; over && sent.dir != "" {
			s.discard(ctx, sent.dir, c.id)
			sent = delivery{}
		}
		switch {
		case err != nil:
			return Commit{}, at.dir, err
		case at.found != nil:
			return *at.found, at.dir, nil
		case at.former != nil && at.former.brought(at.dir, dataDir+"/"+c.id):
			c, sent = c.anew(), delivery{} // its data is gone
		}
		commit, err := s.shipTo(ctx, c, at, &sent)
		switch {
		case errors.Is(err, errStepExists) && taken < maxTaken:
			taken++
		case errors.Is(err, errVanished) && vanished < maxVanished:
			vanished++
			s.log.Warn("data of this upload was removed by another process, sending it again", "step", at.dir, "error", err)
			c, sent = c.anew(), delivery{}
		default:
			return commit, at.dir, err
		}
	}
}

// anew returns c as a new upload with its own ID, which reuses nothing from earlier attempts. The
// process that removed the data may still be removing.
func (c uploadJob) anew() uploadJob {
	c.sent.forget()
	c.id = newID()
	return c
}

// place chooses the step's directory and reads its COMMIT.json. It never replaces a COMMIT of a
// later version of stager: that this version cannot read it does not make it invalid.
func (s *shipper) place(ctx context.Context, c uploadJob) (at spot, err error) {
	for suffix := 0; ; suffix = max(suffix+1, s.attempt) {
		at = spot{dir: stepDir(c.step, suffix)}
		there, obj, err := readCommitAt(ctx, s.store, at.dir)
		switch kind := backends.KindOf(err); {
		case err == nil:
			same, err := c.holds(ctx, there, s.node)
			if err != nil {
				return at, err
			}
			if same {
				return s.placeSame(ctx, c, at, there, obj)
			}
			at.former = &there
		case kind == backends.NotExist:
			return at, nil
		case kind != backends.Corrupt && kind != backends.Unsupported && kind != backends.Invalid:
			return at, err
		}
		if err == nil && s.rewrites(c, there) {
			at.replace, at.over = true, obj
			return at, nil
		}
		switch s.conflict {
		case ConflictSuffix:
		case ConflictOverwrite:
			if kind := backends.KindOf(err); err != nil && (kind == backends.Unsupported || kind == backends.Invalid) {
				return at, conflict(at.dir, "this stager cannot read it, and replaces nothing of a later version: %v", err)
			}
			if there.Attempt > s.attempt {
				return at, conflict(at.dir, "attempt %d wrote it, and this is attempt %d", there.Attempt, s.attempt)
			}
			at.replace, at.over = true, obj
			return at, nil
		default:
			if err == nil && s.wrote(there) {
				return at, conflict(at.dir, "%w", errPartly)
			}
			return at, conflict(at.dir, "remove it, choose another destination, or set conflict (push: --conflict) to %s or %s", ConflictOverwrite, ConflictSuffix)
		}
	}
}

// placeSame handles a COMMIT with the same bytes as the checkpoint c. If its data exists, the step
// is done; a provisional COMMIT becomes final if c is. Otherwise the COMMIT is replaced,
// regardless of the conflict mode.
func (s *shipper) placeSame(ctx context.Context, c uploadJob, at spot, there Commit, obj backends.Object) (spot, error) {
	_, missing, err := s.lookUp(ctx, at.dir, &there)
	switch {
	case err != nil:
		return at, err
	case missing == nil && there.Provisional && !c.quiet:
		before := there
		there.Evidence, there.Provisional = c.because, false
		unlock, err := s.locked(ctx, c.step)
		if err != nil {
			return at, err
		}
		defer unlock()
		if err := replaceCommit(ctx, s.store, good{at.dir, before, obj.Version, obj.ModTime}, &there); err != nil {
			return at, err
		}
		at.found = &there
	case missing == nil:
		at.found = &there
	default:
		s.log.Warn("the store has a COMMIT of this step without its data, sending it again", "step", at.dir, "error", missing)
		at.replace, at.over, at.former = true, obj, &there
	}
	return at, nil
}

// locked is lock, if there is one.
func (s *shipper) locked(ctx context.Context, step int64) (unlock func(), err error) {
	if s.lock == nil {
		return func() {}, nil
	}
	return s.lock(ctx, step)
}

func conflict(dir, format string, args ...any) error {
	return &backends.Error{
		Op: "commit", Key: dir, Kind: backends.Exist,
		Err: fmt.Errorf("%w: %w", errConflict, fmt.Errorf(format, args...)),
	}
}

// interrupted returns an error of kind Changed that wraps why: errStepExists or errVanished.
func interrupted(dir string, why error) error {
	return &backends.Error{Op: "commit", Key: dir, Kind: backends.Changed, Err: why}
}

// shipTo uploads what sent does not have, and commits it. It returns errStepExists if COMMIT.json
// is no longer in the state of at.
func (s *shipper) shipTo(ctx context.Context, c uploadJob, at spot, sent *delivery) (Commit, error) {
	if sent.dir == "" {
		own, err := s.deliver(ctx, c, at.dir)
		if err != nil {
			return Commit{}, err
		}
		*sent = delivery{at.dir, own}
	}
	commit := s.single(at.dir, sent.part)
	// Never write a COMMIT that restore would reject.
	if err := commit.check(); err != nil {
		return Commit{}, &backends.Error{Op: "commit", Key: at.dir, Kind: backends.Invalid, Err: err}
	}
	if missing, err := s.uploaded(ctx, at.dir, &commit); err != nil || missing != nil {
		c.sent.forget()
		if err == nil {
			err = interrupted(at.dir, fmt.Errorf("%w: %w", errVanished, missing))
		}
		return Commit{}, err
	}
	there, err := s.commit(ctx, at, &commit, dataDir+"/"+c.id)
	if err != nil {
		return Commit{}, err
	}
	return s.confirm(ctx, at, there, dataDir+"/"+c.id)
}

// deliver uploads the files and returns this node's part.
func (s *shipper) deliver(ctx context.Context, c uploadJob, dir string) (part, error) {
	data := dataDir + "/" + c.id
	for before := s.earlier(ctx, dir); ; before = nil {
		files, err := s.send(ctx, c, dir+"/"+data, before)
		if err != nil {
			return part{}, err
		}
		cursors, err := c.at(ctx)
		if err != nil {
			return part{}, err
		}
		own := part{
			APIVersion: apiVersion, Kind: partKind, Step: c.step, Node: s.node, Attempt: s.attempt,
			SamplesSeen: c.samples, Metrics: c.metrics, Cursors: cursors, Evidence: c.because, Provisional: c.quiet, Completed: c.completed, Data: data, Files: files,
		}
		refers := before.used(files)
		if refers {
			if err := s.record(ctx, dir, c.id, own); err != nil {
				return part{}, err
			}
		}
		if s.nodes <= 1 { // with several nodes, package group creates the part
			if err := s.upload(ctx, dir, own); err != nil {
				return part{}, err
			}
		}
		// A file shared with an earlier step stays only while a COMMIT references it. A process
		// that removes that COMMIT checks for other references afterwards, and finds this record.
		if !refers || before.there(ctx, s.store) {
			return own, nil
		}
	}
}

// commit creates or replaces COMMIT.json, and returns the COMMIT that is there afterwards. That
// COMMIT names data, which this upload sent.
func (s *shipper) commit(ctx context.Context, at spot, c *Commit, data string) (*Commit, error) {
	text, err := encode(c)
	if err != nil {
		return nil, err
	}
	opts := backends.CreateOptions{IfAbsent: !at.replace}
	unlock, err := s.locked(ctx, c.Step)
	if err != nil {
		return nil, err
	}
	defer unlock()
	guarded, replaces := records.Decides(s.store)
	if at.replace {
		opts.IfVersion = at.over.Version
		guarded = replaces && opts.IfVersion != ""
	}
	if !guarded {
		s.log.Warn("this store cannot compare and replace COMMIT.json in one step: of two writers of one step at the same instant both may succeed",
			"step", at.dir)
		if err := s.asRead(ctx, at); err != nil {
			return nil, err
		}
	}
	if weaken.unconditional {
		opts = backends.CreateOptions{}
	}
	_, err = s.store.PutBytes(ctx, at.dir+"/"+commitKey, text, opts)
	if err == nil && guarded {
		return c, nil
	}
	// COMMIT.json may exist nevertheless: written by this call, by an attempt whose response was
	// lost, or by another node. The name of its data identifies the writer.
	there, rerr := readCommit(ctx, s.store, at.dir)
	kind := backends.KindOf(err)
	switch {
	case rerr == nil && there.brought(at.dir, data):
		return &there, nil
	case (err == nil || kind == backends.Exist || kind == backends.Changed) && (rerr == nil || bad(rerr)):
		return nil, interrupted(at.dir, errStepExists)
	case err == nil:
		return nil, rerr
	}
	return nil, err
}

// asRead returns errStepExists if COMMIT.json has changed since place read it.
func (s *shipper) asRead(ctx context.Context, at spot) error {
	now, err := s.store.Stat(ctx, at.dir+"/"+commitKey)
	switch absent := backends.KindOf(err) == backends.NotExist; {
	case err != nil && !absent:
		return err
	case absent == at.replace, !absent && now.Version != at.over.Version:
		return interrupted(at.dir, errStepExists)
	}
	return nil
}

// confirm checks that the data of a COMMIT that was just written exists. It returns the COMMIT if
// it does, and also if another writer or retention has legitimately replaced or removed the
// COMMIT since.
func (s *shipper) confirm(ctx context.Context, at spot, c *Commit, data string) (Commit, error) {
	left, missing, err := s.lookUp(ctx, at.dir, c)
	if err != nil {
		return Commit{}, err
	}
	if missing != nil && !weaken.lookOnce {
		now, err := readCommit(ctx, s.store, at.dir)
		switch {
		case err == nil && now.brought(at.dir, data):
			return Commit{}, interrupted(at.dir, fmt.Errorf("%w: %w", errVanished, missing))
		case err == nil:
			s.log.Info("another upload has replaced this checkpoint since it was committed", "step", at.dir)
			return *c, nil
		case backends.KindOf(err) == backends.NotExist:
			s.log.Warn("this checkpoint was committed, but retention has removed it since", "step", at.dir)
			return *c, nil
		default:
			return Commit{}, err
		}
	}
	s.afterCommit(ctx, at, c, left)
	return *c, nil
}

// brought reports whether c, in a step's directory dir, has files that were uploaded to data.
func (c *Commit) brought(dir, data string) bool {
	return c.Data == data || slices.ContainsFunc(c.Files, func(f File) bool { return strings.HasPrefix(f.At, dir+"/"+data+"/") })
}

// afterCommit cleans up after the step exists. left is the listing of the step's directory.
func (s *shipper) afterCommit(ctx context.Context, at spot, commit *Commit, left []backends.Object) {
	if _, err := s.store.PutBytes(ctx, latestKey, []byte(at.dir+"\n"), backends.CreateOptions{}); err != nil {
		s.log.Warn("cannot write LATEST; restore does not need it", "error", err)
	}
	replaced := at.replace && at.former != nil
	if replaced && s.wrote(*at.former) && !at.former.Provisional {
		s.log.Info("the trainer wrote this step again, and the new files replace those that were saved", "step", at.dir, "evidence", commit.Evidence)
	}
	if s.leave != nil {
		if replaced {
			s.leave(leftover{dir: at.dir, step: commit.Step, commit: at.former})
		}
		return
	}
	r := s.retention()
	if replaced {
		r.finish(at.dir, at.former)
	}
	if err := r.tidy(ctx, at.dir, commit, left); err != nil {
		s.log.Warn("cannot remove data of an earlier upload of this step", "step", at.dir, "error", err)
	}
}

// retention returns a retention that removes only this upload's own data and abandoned data.
func (s *shipper) retention() *retention {
	return &retention{store: s.store, log: s.log, ids: s.own, abandoned: Abandoned}
}

// discard removes what this process sent under id to a step's directory and will not commit. It
// keeps data that a COMMIT or an upload in progress references.
func (s *shipper) discard(ctx context.Context, dir, id string) {
	if step, _, ok := parseStepDir(dir); ok && s.leave != nil {
		s.leave(leftover{dir: dir, step: step, id: id})
		return
	}
	r := s.retention()
	r.ids = map[string]bool{id: true}
	if err := r.drop(ctx, dir, id); err != nil {
		s.log.Warn("cannot remove unreferenced data", "step", dir, "upload", id, "error", err)
	}
}

// uploaded checks that the store has the files that c is about to promise.
func (s *shipper) uploaded(ctx context.Context, dir string, c *Commit) (missing, err error) {
	sizes, err := sizesOf(ctx, s.store, dir, c)
	if err != nil {
		return nil, err
	}
	return c.missing(dir, sizes), nil
}

// lookUp lists the step's directory and the other directories that c references. It returns the
// objects in the step's directory, and an error for the first missing file.
func (s *shipper) lookUp(ctx context.Context, dir string, c *Commit) (left []backends.Object, missing, err error) {
	sizes, directories := make(map[string]int64), map[string]bool{dir + "/": true}
	for _, f := range c.Files {
		if key := c.key(dir, f); !strings.HasPrefix(key, dir+"/") {
			directories[uploadDir(key)] = true
		}
	}
	for _, directory := range slices.Sorted(maps.Keys(directories)) {
		for obj, err := range s.store.List(ctx, directory) {
			if err != nil {
				return nil, nil, err
			}
			sizes[obj.Key] = obj.Size
			if strings.HasPrefix(obj.Key, dir+"/") {
				left = append(left, obj)
			}
		}
	}
	return left, c.missing(dir, sizes), nil
}
