package checkpoint

import "time"

// results is which checkpoints are complete, and which are saved, as far as this process knows.
// Uploader.mu guards it, because it changes together with the snapshots.
type results struct {
	complete  StepTime      // newest; step -1 for none
	apart     time.Duration // time between the newest and the one before; 0: it is the first
	committed StepTime      // newest; step -1 for none
	upTo      time.Time     // when the newest checkpoint that this process committed was complete
	missed    []Waiting     // will not be committed, the last mostMissed
}

// isComplete records that a snapshot of a complete checkpoint exists.
func (r *results) isComplete(snap *snapshot) {
	if snap.Complete.Before(r.complete.Time) {
		return
	}
	if snap.Step != r.complete.Step && r.complete.Step >= 0 {
		r.apart = snap.Complete.Sub(r.complete.Time)
	}
	r.complete = StepTime{snap.Step, snap.Complete, snap.Evidence, snap.Provisional}
}

// isCommitted records that this process committed a checkpoint, unless a newer one is committed.
func (r *results) isCommitted(snap *snapshot, c StepTime) {
	if !snap.Complete.Before(r.upTo) {
		r.upTo, r.committed = snap.Complete, c
	}
}

// isFound records a COMMIT of an earlier process.
func (r *results) isFound(step int64) {
	if step > r.committed.Step && r.upTo.IsZero() {
		r.committed = StepTime{Step: step}
	}
}

// isFinal records that the COMMIT of a step is final now.
func (r *results) isFinal(step int64, evidence string) {
	if r.committed.Step == step {
		r.committed.Evidence, r.committed.Provisional = evidence, false
	}
}

// miss lists a checkpoint that will not be committed.
func (r *results) miss(name, reason string) {
	r.missed = append(r.missed[max(0, len(r.missed)+1-mostMissed):], Waiting{name, reason})
}
