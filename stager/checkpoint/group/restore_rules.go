package group

// Candidate is a committed checkpoint that can be restored.
type Candidate struct {
	Found
	// Joined says which save it is; nil: a single node saved it.
	Joined *Joined
	// Restored is the number of the job's last agreement when its files appeared; 0: none.
	Restored int
}

// restoreRules is a set of rules of restoring that tests switch off.
type restoreRules uint8

const (
	ruleAgree  restoreRules = 1 << iota // nodes restore what is agreed on
	ruleProof                           // a COMMIT proves that the job ran only if its files appeared after the agreement
	ruleAgain                           // a node that restores again makes a new agreement
	ruleJoined                          // a node that restored in the same row knows that the job ran
	ruleWait                            // nobody restores another checkpoint while others hold a damaged one
	ruleBad                             // nodes agree on what to restore in place of a damaged one
)

// ProvedBy reports whether a checkpoint that was committed after the one agreed on proves
// that the job ran since the agreement: its files appeared when this agreement was the last
// one. No trainer goes on before all nodes have restored, as they wait for each other, so
// every node had restored by then. What a single node or another job saved says nothing of
// agreements, and counts as a proof, since otherwise a job that does not save here would never
// restore anything newer.
func (a *Agreement) ProvedBy(c Candidate) bool {
	return c.Joined == nil || c.Joined.Job != a.Job || c.Restored >= a.Number
}

// proof returns the newest of the checkpoints since the last agreement that proves that the
// job ran, or nil.
func (r *Restorer) proof() *Candidate {
	for i := range r.since {
		if c := &r.since[i]; !r.on(ruleProof) || r.last.ProvedBy(*c) {
			return c
		}
	}
	return nil
}

// took reports whether this node has restored an agreement of the row that a ends, or
// could not as the job had fewer nodes. Then what proves that the job ran proves that this
// node begins again.
func (r *Restorer) took(a Agreement) bool {
	if r.cfg.Index >= a.Count {
		return true
	}
	if !r.on(ruleJoined) {
		return r.own.Done == a.Number
	}
	return r.own.Done >= a.Base
}

// blocks reports whether a node that wrote f may wait with a checkpoint that it restored
// before a was made in its place.
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
