package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A ProvisionalError reports that the files of a step are at the destination, and that only a
// quiet period or the next checkpoint indicates that they are all.
type ProvisionalError struct {
	Step  int64
	Nodes int // of the job; 0: a single one
}

func (e *ProvisionalError) Error() string {
	why := "nothing proves that all its files were written. Call stager commit when they are"
	if e.Nodes > 0 {
		why = "not every node has declared its files complete. " +
			"Call stager commit on each node, or call it with --all-nodes on one node after all have written their files"
	}
	return fmt.Sprintf("step %d is saved, but only provisionally: %s", e.Step, why)
}

// noteFinalLocked records that the provisional COMMIT of a step, in the directory dir of the store,
// was replaced by a final one.
func (u *Uploader) noteFinalLocked(step int64, dir string) {
	u.own.isFinal(step)
	for name, s := range u.shipped {
		if s.Dir == dir && s.Provisional {
			s.Provisional = false
			u.shipped[name] = s
		}
	}
	u.notifyLocked()
}

// Wait returns nil when the step is in the store, and an error when it will not be saved in its
// current state. For an unknown step it returns an error of kind NotExist at once. If a step is
// still provisional a quiet period after its COMMIT, Wait returns a [ProvisionalError].
func (u *Uploader) Wait(ctx context.Context, step int64) error {
	for {
		u.mu.Lock()
		known, again, err := u.fateLocked(step)
		changed := u.changed
		u.mu.Unlock()
		if known {
			return err
		}
		timer := time.NewTimer(again)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("step %d is not saved yet: %w", step, context.Cause(ctx))
		}
		timer.Stop()
	}
}

// fateLocked returns the result of a step. While the result is open, known is false, and again is
// when to ask for it, unless something changes before.
func (u *Uploader) fateLocked(step int64) (known bool, again time.Duration, err error) {
	again = time.Hour
	if snap := u.snaps[step]; snap != nil {
		return snap.refused != nil, again, snap.refused
	}
	if at, ok := u.own.saved[step]; ok {
		if left := u.cfg.QuietPeriod - time.Since(at); !at.IsZero() && left > 0 {
			return false, left, nil
		} else if !at.IsZero() {
			return true, 0, &ProvisionalError{step, u.cfg.Nodes}
		}
		return true, 0, nil
	}
	for _, s := range u.shipped {
		switch {
		case s.Step != step:
		case s.Dir == "":
			return true, 0, backends.Errorf(backends.NotExist, "wait", stepDir(step, 0), "newer checkpoints were complete before it could be uploaded")
		case s.Provisional:
			return true, 0, &ProvisionalError{step, u.cfg.Nodes}
		default:
			return true, 0, nil
		}
	}
	for name, f := range u.failed {
		if f.step == step {
			return true, 0, backends.Errorf(f.kind, "wait", name, "%s", f.reason)
		}
	}
	for _, e := range u.seen {
		if e.step == step {
			return false, again, nil
		}
	}
	return true, 0, backends.Errorf(backends.NotExist, "wait", stepDir(step, 0), "this step is unknown")
}
