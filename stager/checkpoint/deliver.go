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

// COMMIT.json is created where there is none, or replaced in the version that was read
// before, by compare-and-swap. When that fails another writer was first, and what is
// there now is decided on anew. After it, and before success is reported, the data is
// looked up again: what another process removed meanwhile is sent anew.

// How often a checkpoint is decided on, or sent, anew in one call of ship.
const (
	maxTaken    = 20
	maxVanished = 3
)

var (
	// errStepExists: COMMIT.json is not what it was when it was read.
	errStepExists = errors.New("another writer was first")
	// errVanished: data that was sent is not there, and COMMIT.json names it or was to.
	errVanished = errors.New("another process removed data of this upload")
)

// spot is where a checkpoint goes, and what COMMIT.json is there.
type spot struct {
	dir     string
	replace bool            // there is a COMMIT.json, and it may be replaced
	over    backends.Object // that COMMIT.json
	former  *Commit         // what it says; nil when it is not good
	found   *Commit         // has these very bytes and all its data: nothing is to be done
}

// delivery is what ship has sent so far.
type delivery struct {
	dir  string // the step's directory; empty: nothing
	part part
}

// ship sends a checkpoint and commits it. It returns the COMMIT that makes the step
// exist, which may be that of another upload of the same bytes, and its directory.
//
// Nothing that it leaves after an error counts: a later call with the same id goes
// on with it, any other sweeps it. What is in the files' places is sent only as it
// was listed in c.files.
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

// anew is c as an upload of its own, which takes nothing from tries before. Whoever
// removes what was sent may not have finished.
func (c uploadJob) anew() uploadJob {
	c.sent.forget()
	c.id = newID()
	return c
}

// place chooses the step's directory, and reads what is there. A COMMIT of a later version of
// stager is never replaced: that it cannot be read here says nothing against it.
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
				return s.placeSame(ctx, at, there, obj)
			}
			at.former = &there
		case kind == backends.NotExist:
			return at, nil
		case kind != backends.Corrupt && kind != backends.Unsupported && kind != backends.Invalid:
			return at, err
		}
		if there.Provisional && s.wrote(there) {
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
			return at, conflict(at.dir, "remove it, choose another destination, or set conflict (push: --conflict) to %s or %s", ConflictOverwrite, ConflictSuffix)
		}
	}
}

// wrote reports whether this attempt of this uploader wrote a COMMIT.
func (s *shipper) wrote(c Commit) bool {
	id, _ := strings.CutPrefix(c.Data, dataDir+"/")
	return s.own[id] && c.Attempt == s.attempt && s.nodes <= 1
}

// placeSame is place where a COMMIT has these very bytes. It counts when its data is
// there; otherwise it is replaced, whatever conflict says.
func (s *shipper) placeSame(ctx context.Context, at spot, there Commit, obj backends.Object) (spot, error) {
	_, missing, err := s.lookUp(ctx, at.dir, &there)
	switch {
	case err != nil:
		return at, err
	case missing == nil:
		at.found = &there
	default:
		s.log.Warn("the store has a COMMIT of this step without its data, sending it again", "step", at.dir, "error", missing)
		at.replace, at.over, at.former = true, obj, &there
	}
	return at, nil
}

func conflict(dir, format string, args ...any) error {
	return &backends.Error{
		Op: "commit", Key: dir, Kind: backends.Exist,
		Err: fmt.Errorf("%w: %s", errConflict, fmt.Sprintf(format, args...)),
	}
}

// interrupted is an error of kind Changed with errStepExists or errVanished in it.
func interrupted(dir string, why error) error {
	return &backends.Error{Op: "commit", Key: dir, Kind: backends.Changed, Err: why}
}

// shipTo sends what sent does not have, and commits it. It fails with errStepExists when
// COMMIT.json is no longer as at says.
func (s *shipper) shipTo(ctx context.Context, c uploadJob, at spot, sent *delivery) (Commit, error) {
	if sent.dir == "" {
		own, err := s.deliver(ctx, c, at.dir)
		if err != nil {
			return Commit{}, err
		}
		*sent = delivery{at.dir, own}
	}
	commit := s.single(at.dir, sent.part)
	// What must not be restored must not be written.
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

// deliver sends the files and brings the part.
func (s *shipper) deliver(ctx context.Context, c uploadJob, dir string) (part, error) {
	data := dataDir + "/" + c.id
	for before := s.earlier(ctx, dir); ; before = nil {
		files, err := s.send(ctx, c, dir+"/"+data, before)
		if err != nil {
			return part{}, err
		}
		own := part{
			APIVersion: apiVersion, Kind: partKind, Step: c.step, Node: s.node, Attempt: s.attempt,
			SamplesSeen: c.samples, Metrics: c.metrics, Cursors: c.cursors, Evidence: c.because, Provisional: c.quiet, Completed: c.completed, Data: data, Files: files,
		}
		refers := before.used(files)
		if refers {
			if err := s.record(ctx, dir, c.id, own); err != nil {
				return part{}, err
			}
		}
		if s.nodes <= 1 { // of several, package group creates the part
			if err := s.upload(ctx, dir, own); err != nil {
				return part{}, err
			}
		}
		// What an earlier step shares stays only as long as a COMMIT says so: who
		// removes that one looks for others afterwards, and finds this record.
		if !refers || before.there(ctx, s.store) {
			return own, nil
		}
	}
}

// commit creates or replaces COMMIT.json and returns what is there then: it names data,
// which this upload sent.
func (s *shipper) commit(ctx context.Context, at spot, c *Commit, data string) (*Commit, error) {
	text, err := encode(c)
	if err != nil {
		return nil, err
	}
	opts := backends.CreateOptions{IfAbsent: !at.replace}
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
	// It may be there all the same, by this call, by a try whose answer was lost, or by
	// another node: the data's name tells whose it is.
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

// asRead fails with errStepExists when COMMIT.json is not what place read.
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

// confirm looks up the data of a COMMIT that was just written. It returns the COMMIT
// when all is there, and also when another writer or a retention has replaced or removed
// it since, by their own right.
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
			s.log.Warn("this checkpoint was committed, and a retention has removed it since", "step", at.dir)
			return *c, nil
		default:
			return Commit{}, err
		}
	}
	s.afterCommit(ctx, at, c, left)
	return *c, nil
}

// brought reports whether the COMMIT of a step's directory has what was sent to data.
func (c *Commit) brought(dir, data string) bool {
	return c.Data == data || slices.ContainsFunc(c.Files, func(f File) bool { return strings.HasPrefix(f.At, dir+"/"+data+"/") })
}

// afterCommit does what only tidies: the step exists already. left is what was found in
// the step's directory.
func (s *shipper) afterCommit(ctx context.Context, at spot, commit *Commit, left []backends.Object) {
	if _, err := s.store.PutBytes(ctx, latestKey, []byte(at.dir+"\n"), backends.CreateOptions{}); err != nil {
		s.log.Warn("the hint LATEST is not written; restore does not need it", "error", err)
	}
	r := s.retention()
	if at.replace && at.former != nil {
		r.finish(at.dir, at.former)
	}
	if err := r.tidy(ctx, at.dir, commit, left); err != nil {
		s.log.Warn("data of an earlier upload of this step is left behind", "step", at.dir, "error", err)
	}
}

// retention is one that removes only what is this upload's own, and what is abandoned.
func (s *shipper) retention() *retention {
	return &retention{store: s.store, log: s.log, ids: s.own, abandoned: Abandoned}
}

// discard removes what this process sent to a step's directory under an id and will not
// commit, unless a COMMIT or an upload on its way names it.
func (s *shipper) discard(ctx context.Context, dir, id string) {
	r := s.retention()
	r.ids = map[string]bool{id: true}
	if err := r.drop(ctx, dir, id); err != nil {
		s.log.Warn("data that nobody refers to is left behind", "step", dir, "upload", id, "error", err)
	}
}

// uploaded asks the store once more for what COMMIT is about to promise.
func (s *shipper) uploaded(ctx context.Context, dir string, c *Commit) (missing, err error) {
	sizes, err := sizesOf(ctx, s.store, dir, c)
	if err != nil {
		return nil, err
	}
	return c.missing(dir, sizes), nil
}

// lookUp lists the step's directory, and those of others that the COMMIT refers to. It
// returns what is in the step's directory, and the first file that is missing.
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
