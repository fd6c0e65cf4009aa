package group

// Candidate is a committed checkpoint that can be restored.
type Candidate struct {
	Found
	// Joined identifies its save; nil: a single node saved it.
	Joined *Joined
	// Restored is the number of the job's last agreement when its files appeared; 0: none.
	Restored int
}

// restoreRules is a set of rules of restoring that tests disable.
type restoreRules uint8

const (
	ruleAgree  restoreRules = 1 << iota // nodes restore what is agreed on
	ruleProof                           // a COMMIT proves that the job ran only if its files appeared after the agreement
	ruleAgain                           // a node that restores again makes a new agreement
	ruleJoined                          // a node that restored in the same sequence knows that the job ran
	ruleWait                            // no node restores another checkpoint while others hold a damaged one
	ruleBad                             // nodes agree on what to restore instead of a damaged one
)

// ProvedBy reports whether a checkpoint that was committed after the agreed one proves that the
// job ran since the agreement: its files appeared when this agreement was the last one. No
// trainer continues before all nodes have restored, because they wait for each other. So every
// node had restored by then. What a single node or another job saved is unrelated to agreements,
// and counts as proof. Otherwise a job that does not save here would never restore anything
// newer.
func (a *Agreement) ProvedBy(c Candidate) bool {
	return c.Joined == nil || c.Joined.Job != a.Job || c.Restored >= a.Number
}

// proof returns the newest checkpoint since the last agreement that proves that the job ran, or
// nil.
func (r *Restorer) proof() *Candidate {
	for i := range r.since {
		if c := &r.since[i]; !r.on(ruleProof) || r.last.ProvedBy(*c) {
			return c
		}
	}
	return nil
}

// took reports whether this node has restored an agreement of the sequence that a ends, or could
// not because the job had fewer nodes. A proof that the job ran then also proves that this node
// starts again.
func (r *Restorer) took(a Agreement) bool {
	if r.cfg.Index >= a.Count {
		return true
	}
	if !r.on(ruleJoined) {
		return r.own.Done == a.Number
	}
	return r.own.Done >= a.Base
}

// blocks reports whether the node that wrote f may wait with a checkpoint that it restored before
// a replaced it.
func (a *Agreement) blocks(f Follower) bool { return f.Done >= a.Over && f.Follows < a.Base }

// next returns the agreement on a checkpoint after the last one.
func (r *Restorer) next(found Found, cause Cause) Agreement {
	last := r.last
	a := Agreement{
		Header: Header{APIVersion: apiVersion, Kind: kindAgreement}, Job: r.cfg.Job, Number: last.Number + 1, Base: last.Number + 1,
		Count: r.cfg.Count, Step: found.Step, Dir: found.Dir, Digest: found.Digest, Cause: cause, By: r.cfg.Index,
	}
	switch cause {
	case CauseAgain:
		a.Base, a.Bad, a.Over = last.Base, last.Bad, last.Over
	case CauseBad:
		a.Bad = append(append(a.Bad, last.Bad[max(0, len(last.Bad)-maxBad+1):]...), last.Digest)
		if r.ran == nil {
			if a.Over = last.Over; a.Over == 0 {
				a.Over = last.Base
			}
		}
	}
	return a
}
