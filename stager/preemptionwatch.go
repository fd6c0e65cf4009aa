package stager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/stager-dev/stager/stager/preemption"
	"github.com/stager-dev/stager/window/disk"
)

// onPreemption starts the drain when a preemption notice arrives.
func (d *Daemon) onPreemption(ctx context.Context) {
	left, err := preemption.Wait(ctx, d.cfg.Preemption, d.log)
	if err != nil {
		return // Run has returned
	}
	d.log.Warn("preemption notice received", "notice", d.cfg.Preemption, "left", left.Round(time.Second))
	d.Drain(left)
}

// preempt returns the path of the file that signals the drain to a trainer. It lies beside the
// socket, which the trainer can reach in any case.
func (d *Daemon) preempt() string { return filepath.Join(filepath.Dir(d.cfg.Socket), preemptName) }

const preemptName = "PREEMPT"

// preemptionStatus is the content of the file.
type preemptionStatus struct {
	Until time.Time `json:"until,omitzero"` // the deadline
}

// signalTrainer writes the file. The caller holds mu.
func (d *Daemon) signalTrainer() {
	var said preemptionStatus
	if !d.until.IsZero() {
		said.Until = d.until.UTC()
	}
	if err := writePreempt(filepath.Dir(d.cfg.Socket), said); err != nil {
		d.log.Warn("cannot write the notice file for the trainer", "error", err)
	}
}

func writePreempt(dir string, said preemptionStatus) (err error) {
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	root, err := disk.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // the file is already renamed or removed
	file, err := disk.Replacement(root, preemptName, 0o644)
	if err != nil {
		return err
	}
	if _, err = file.Write(append(text, '\n')); err == nil {
		err = file.CommitNew()
	}
	if errors.Is(err, fs.ErrExist) {
		if !isPreempt(root) {
			return errors.Join(fmt.Errorf("%s: stager did not write that file and does not replace it; remove it", filepath.Join(dir, preemptName)), file.Close())
		}
		err = file.Commit()
	}
	return errors.Join(err, file.Close())
}

// removePreempt removes the file, written by this process or an earlier one, unless another program
// wrote it.
func removePreempt(dir string) {
	root, err := disk.OpenRoot(dir)
	if err != nil {
		return // no directory, so no file
	}
	defer root.Close() // opened only to read
	if isPreempt(root) {
		_ = root.Remove(preemptName) // a trainer that still finds it saves once more
	}
}

// isPreempt reports whether a stager of this user wrote the file: it contains a preemptionStatus
// and nothing else.
func isPreempt(root *os.Root) bool {
	info, err := root.Lstat(preemptName)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	const longest = 200
	text, err := disk.ReadSmall(root, preemptName, longest)
	if err != nil {
		return false
	}
	var said preemptionStatus
	if json.Unmarshal(text, &said) != nil {
		return false
	}
	again, err := json.Marshal(said)
	return err == nil && bytes.Equal(text, append(again, '\n'))
}
