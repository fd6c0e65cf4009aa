package stager

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/stager-dev/stager/stager/notice"
)

// heed begins the end when the machine is to be taken away.
func (d *Daemon) heed(ctx context.Context) {
	left, err := notice.Wait(ctx, d.cfg.Notice, d.log)
	if err != nil {
		return // Run is over
	}
	d.log.Warn("this machine is about to be taken away", "notice", d.cfg.Notice, "left", left.Round(time.Second))
	d.Drain(left)
}

// preempt is the file that tells a trainer that the end has begun: it lies beside the
// socket, which the trainer has in any case.
func (d *Daemon) preempt() string { return filepath.Join(filepath.Dir(d.cfg.Socket), "PREEMPT") }

// tellTrainer writes the file. The caller holds mu.
func (d *Daemon) tellTrainer() {
	var said struct {
		Until time.Time `json:"until,omitzero"` // when there is no more time
	}
	said.Until = d.until.UTC()
	if d.until.IsZero() {
		said.Until = time.Time{}
	}
	text, err := json.Marshal(said)
	if err == nil {
		err = os.WriteFile(d.preempt()+".new", append(text, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(d.preempt()+".new", d.preempt())
	}
	if err != nil {
		d.log.Info("the trainer is not told of the end by a file", "error", err)
	}
}
