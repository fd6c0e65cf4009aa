package group

import (
	"fmt"
	"slices"
	"time"
)

// RestoreConfig configures a Restorer.
type RestoreConfig struct {
	Job   string // identity from the scheduler
	Index int    // of this node
	Count int    // number of nodes
	Pod   string // this run of the pod; empty: unknown
	Step  int64  // the step that the user chose; [Nothing]: the agreed one
	// Empty reports that the job may start without a checkpoint.
	Empty bool
	Wait  time.Duration // poll interval for nodes that hold a damaged checkpoint
}

// Restorer agrees with the other nodes of a job on one checkpoint. Each node restores it at its
// own time and with its own Restorer; no other process needs to be alive. Like [Machine], it
// decides, and the caller executes the actions.
//
// The last agreement of the job is valid. A node follows it until the job is known to have run
// since, or until this node has restored it. Then the node makes the next agreement. A node that
// restores again while nothing proves that the job ran may be the only one. The next agreement is
// therefore on the same checkpoint, even if a newer one was committed. It separates earlier saves
// from later ones, because a checkpoint records the number of the last agreement at the time when
// its files appeared; see [Agreement.ProvedBy].
type Restorer struct {
	cfg RestoreConfig
	off restoreRules // disabled by tests

	phase   restorePhase
	began   int       // the number of the last agreement when this process started; -1: not read
	last    Agreement // the valid one; Number 0: none
	own     Follower
	version string // of the own record
	since   []Candidate
	found   *Candidate // the newest that can be restored
	ran     *Candidate // proves that the job ran since last
	bad     bool       // last cannot be restored
	mute    bool       // nothing can be written
	mine    Agreement  // being created

	out []Action
}

type restorePhase uint8

const (
	restoreIdle   restorePhase = iota
	restoreLast                // reads the last agreement
	restoreOwn                 // reads what this node has restored
	restoreNewest              // finds what was committed since
	restorePart                // reads which pod took part in what was committed since
	restoreCreate              // creates an agreement
	restoreFollow              // records that this node follows the last agreement
	restoreOthers              // reads what the other nodes hold
	restoreWait                // waits for them
	restoreFetch               // restores
	restoreDone                // records that this node has restored
	restoreCheck               // reads whether the agreement is still the last one
	restoreEnd
)

// NewRestorer returns a Restorer, or an error about its RestoreConfig.
func NewRestorer(cfg RestoreConfig) (*Restorer, error) {
	if cfg.Wait <= 0 {
		cfg.Wait = 2 * time.Second
	}
	return &Restorer{cfg: cfg, began: -1}, checkIdentity(cfg.Job, "any", cfg.Index, cfg.Count)
}

var ofRestore = Task{Of: OfRestore}

func (r *Restorer) on(rule restoreRules) bool { return r.off&rule == 0 }

// Step processes an event and returns the resulting actions.
func (r *Restorer) Step(e Event) []Action {
	r.out = nil
	switch {
	case e.What == Start && r.phase == restoreIdle && !r.on(ruleAgree):
		r.do(restoreNewest, Action{Do: Newest})
	case e.What == Start && r.phase == restoreIdle, e.What == Fired && r.phase == restoreWait:
		r.readLast()
	case e.What == Answer:
		r.answered(e)
	}
	return r.out
}

func (r *Restorer) do(p restorePhase, a Action) {
	r.phase, a.For = p, ofRestore
	r.out = append(r.out, a)
}

func (r *Restorer) end(report Report) { r.do(restoreEnd, Action{Do: Tell, Report: report}) }

// readLast starts over and discards all earlier results.
func (r *Restorer) readLast() {
	r.last, r.found, r.ran, r.since, r.bad = Agreement{}, nil, nil, nil, false
	r.do(restoreLast, Action{Do: Last, Key: AgreementsPrefix(r.cfg.Job)})
}

func (r *Restorer) readOwn() {
	r.do(restoreOwn, Action{Do: Read, Key: followerKey(r.cfg.Job, r.cfg.Index)})
}

func (r *Restorer) answered(e Event) {
	switch r.phase {
	case restoreLast:
		r.lastWasRead(e)
	case restoreOwn:
		r.ownWasRead(e)
	case restoreNewest:
		r.newestFound(e)
	case restorePart:
		r.partWasRead(e)
	case restoreCreate:
		r.created(e)
	case restoreFollow, restoreDone:
		r.noted(e)
	case restoreOthers:
		r.othersWereRead(e)
	case restoreFetch:
		r.fetched(e)
	case restoreCheck:
		r.checked(e)
	}
}

// readAgreement decodes the last agreement. If the agreement cannot be read, it ends the restore
// and returns false: a node that ignores it may restore another checkpoint than the others.
func (r *Restorer) readAgreement(e Event) (a Agreement, ok bool) {
	if e.Outcome == NotExist {
		return a, true
	}
	a, err := DecodeAgreement(e.Body)
	if err == nil && (a.Job != r.cfg.Job || e.Outcome != OK) {
		err = fmt.Errorf("it is not an agreement of job %q", r.cfg.Job)
	}
	if err != nil {
		r.end(Report{Topic: Unreadable, Key: AgreementsPrefix(r.cfg.Job), Why: err.Error()})
		return a, false
	}
	return a, true
}

func (r *Restorer) lastWasRead(e Event) {
	a, ok := r.readAgreement(e)
	if !ok {
		return
	}
	r.last = a
	if r.began < 0 {
		r.began = a.Number
	}
	r.readOwn()
}

func (r *Restorer) ownWasRead(e Event) {
	r.own, r.version = Follower{Header: Header{APIVersion: apiVersion, Kind: kindFollower}, Job: r.cfg.Job, Index: r.cfg.Index}, ""
	if e.Outcome != NotExist {
		f, err := DecodeFollower(e.Body)
		if err == nil && (e.Outcome != OK || f.Index != r.cfg.Index || f.Job != r.cfg.Job) {
			err = fmt.Errorf("it is not the record of node %d", r.cfg.Index)
		}
		if err != nil {
			r.end(Report{Topic: Unreadable, Key: followerKey(r.cfg.Job, r.cfg.Index), Why: err.Error()})
			return
		}
		r.own, r.version = f, e.Version
	}
	if r.byHand() && r.last.Number > 0 && r.last.Step == r.cfg.Step {
		r.keep()
		return
	}
	r.findNewest()
}

func (r *Restorer) byHand() bool { return r.cfg.Step > Nothing }

// findNewest finds what was committed since the last agreement, newest first, and the newest that
// can be restored.
func (r *Restorer) findNewest() {
	a := Action{Do: Newest, Past: r.last, Step: r.cfg.Step}
	if a.Bad = r.last.Bad; r.bad {
		a.Bad = append(slices.Clone(a.Bad), r.last.Digest)
	}
	r.do(restoreNewest, a)
}

func (r *Restorer) newestFound(e Event) {
	r.since, r.found, r.ran = e.Since, nil, nil
	if e.Outcome == OK {
		r.found = &Candidate{Found: e.Found}
	}
	if r.last.Number > 0 {
		r.ran = r.proof()
	}
	none := Report{Topic: RestoreNone}
	switch {
	case !r.on(ruleAgree):
		r.last = r.next(r.newest(), CauseFirst)
		r.do(restoreFetch, Action{Do: Fetch, Past: r.last})
	case r.byHand() && r.found == nil, r.bad && r.found == nil:
		r.end(none)
	case r.byHand():
		r.propose(r.newest(), CauseHand)
	case r.bad && !r.on(ruleBad):
		r.last = r.next(r.newest(), CauseBad)
		r.do(restoreFetch, Action{Do: Fetch, Past: r.last})
	case r.bad:
		r.propose(r.newest(), CauseBad)
	case r.last.Number == 0 && r.found == nil && !r.cfg.Empty:
		r.end(none)
	case r.last.Number == 0:
		r.propose(r.newest(), CauseFirst)
	case r.ran != nil && r.took(r.last):
		r.propose(r.newest(), CauseRan)
	case r.ran != nil && r.ran.Joined != nil && r.ran.Joined.Job == r.cfg.Job && r.cfg.Pod != "" && !r.mute:
		id := SaveID{r.ran.Joined.View, r.ran.Joined.Save}
		r.do(restorePart, Action{Do: Read, Key: PartKey(r.ran.Step, id, r.cfg.Index)})
	default:
		r.keep()
	}
}

// newest returns the newest checkpoint that can be restored, or Nothing to start without one.
func (r *Restorer) newest() Found {
	if r.found == nil {
		return Found{Step: Nothing}
	}
	return r.found.Found
}

// partWasRead decides for a node that has not restored the last agreement, while the job saved a
// checkpoint since. If another pod took part in it for this node, this pod started later and
// begins again. Otherwise this pod was there and had not restored: the others may be about to
// start, and wait for it.
func (r *Restorer) partWasRead(e Event) {
	p, err := DecodePart(e.Body)
	if e.Outcome == OK && err == nil && p.Pod != "" && p.Pod != r.cfg.Pod {
		r.propose(r.newest(), CauseRan)
		return
	}
	r.keep()
}

// keep keeps the checkpoint of the last agreement. An agreement made since this process started
// separates saves as well as one that this process makes itself.
func (r *Restorer) keep() {
	again := (r.own.Done >= r.last.Base || r.cfg.Count != r.last.Count) && r.last.Number == r.began
	if again && r.ran == nil && r.on(ruleAgain) && !r.mute {
		r.propose(Found{r.last.Step, r.last.Dir, r.last.Digest}, CauseAgain)
		return
	}
	r.follow()
}

// propose creates the next agreement.
func (r *Restorer) propose(found Found, cause Cause) {
	if r.mute {
		r.end(Report{Topic: RestoreAlone, Why: "nothing can be written to the destination, and no agreement holds"})
		return
	}
	r.mine = r.next(found, cause)
	r.do(restoreCreate, Action{Do: Create, Key: agreementKey(r.cfg.Job, r.mine.Number), Body: encode(r.mine)})
}

func (r *Restorer) created(e Event) {
	switch e.Outcome {
	case OK:
		r.last, r.bad = r.mine, false
		r.follow()
	case Denied:
		r.mute = true
		if r.bad {
			r.propose(Found{}, CauseBad) // reports the error
			return
		}
		r.readLast()
	default: // another node was first, or the result is unknown
		r.readLast()
	}
}

// follow records that this node restores the last agreement.
func (r *Restorer) follow() {
	switch {
	case r.mute && (r.last.Number == 0 || r.ran != nil):
		r.propose(Found{}, CauseFirst) // reports the error
		return
	case r.mute, r.own.Follows == r.last.Number:
		r.readOthers()
		return
	}
	r.own.Follows = r.last.Number
	r.note(restoreFollow)
}

// note writes what this node follows and has restored.
func (r *Restorer) note(p restorePhase) {
	r.own.Pod = r.cfg.Pod
	a := Action{Do: Replace, Key: followerKey(r.cfg.Job, r.cfg.Index), Body: encode(r.own), Version: r.version}
	if r.version == "" {
		a.Do = Create
	}
	r.do(p, a)
}

func (r *Restorer) noted(e Event) {
	switch {
	case e.Outcome == OK && r.phase == restoreFollow:
		r.version = e.Version
		r.readOthers()
	case e.Outcome == OK:
		r.version = e.Version
		r.do(restoreCheck, Action{Do: Last, Key: AgreementsPrefix(r.cfg.Job)})
	case e.Outcome == Denied:
		r.mute = true
		r.readLast()
	default: // another process of this node wrote, or the result of this write is unknown
		r.readLast()
	}
}

// readOthers reads which nodes hold a checkpoint that the last agreement replaced. They had not
// seen that agreement, because this node reads after it was made.
func (r *Restorer) readOthers() {
	if r.last.Over == 0 || !r.on(ruleWait) {
		r.fetch()
		return
	}
	r.do(restoreOthers, Action{Do: Gather, Key: followersPrefix(r.cfg.Job)})
}

func (r *Restorer) othersWereRead(e Event) {
	var holds []int
	for _, rec := range e.Records {
		f, err := DecodeFollower(rec.Body)
		if rec.Outcome != OK || err != nil {
			r.end(Report{Topic: Unreadable, Key: rec.Key, Why: fmt.Sprint(err)})
			return
		}
		if f.Index != r.cfg.Index && f.Index < r.cfg.Count && r.last.blocks(f) {
			holds = append(holds, f.Index)
		}
	}
	if len(holds) == 0 {
		r.fetch()
		return
	}
	r.do(restoreWait, Action{Do: Tell, Report: Report{Topic: Waiting, Step: r.last.Step, Missing: holds}})
	r.do(restoreWait, Action{Do: Wait, After: r.cfg.Wait})
}

func (r *Restorer) fetch() {
	if r.last.Step == Nothing {
		if !r.cfg.Empty {
			r.end(Report{Topic: RestoreNone, Agreement: r.last})
			return
		}
		r.fetched(Event{Outcome: OK})
		return
	}
	r.do(restoreFetch, Action{Do: Fetch, Past: r.last})
}

func (r *Restorer) fetched(e Event) {
	switch {
	case e.Outcome == OK && (r.mute || !r.on(ruleAgree) || r.bad):
		r.end(Report{Topic: RestoreAgreed, Agreement: r.last, Step: r.last.Step})
	case e.Outcome == OK:
		r.own.Done = max(r.own.Done, r.last.Number)
		r.note(restoreDone)
	case !r.on(ruleAgree):
		r.end(Report{Topic: RestoreNone})
	default:
		r.bad = true
		r.findNewest()
	}
}

// checked ends the restore if the agreement that this node has restored is still the last one, or
// if the last one is on the same checkpoint. A node that finds the checkpoint damaged makes the
// next agreement first, and reads afterwards who has restored the old one. So either that node
// sees this one, or this node reads the new agreement now.
func (r *Restorer) checked(e Event) {
	a, ok := r.readAgreement(e)
	if !ok {
		return
	}
	if a.Number == r.last.Number || a.Number > 0 && a.Base <= r.last.Number {
		r.end(Report{Topic: RestoreAgreed, Agreement: r.last, Step: r.last.Step})
		return
	}
	r.readLast()
}
