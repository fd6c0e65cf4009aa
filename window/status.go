package window

import (
	"errors"
	"fmt"
	"time"
)

// Status is the state of a window, for people and programs.
type Status struct {
	Input   string  `json:"input"`
	Dir     string  `json:"dir"`
	Plan    string  `json:"plan"`
	Release Release `json:"release"`

	Epoch     int  `json:"epoch"`               // the current one, from 0
	Epochs    int  `json:"epochs,omitempty"`    // 0: unlimited
	Positions int  `json:"positions"`           // of the current epoch
	Beginning bool `json:"beginning,omitempty"` // Positions are only the first: the source is still being listed
	Finished  int  `json:"settled"`             // how many of them are acknowledged or skipped

	Items map[State]int   `json:"items"` // in the window, by state
	Bytes map[State]int64 `json:"bytes"`
	Used  int64           `json:"usedBytes"`
	Limit int64           `json:"limitBytes"`
	Peak  int64           `json:"peakBytes"` // since the start

	// Since the start.
	Delivered    int64 `json:"delivered"`
	Acknowledged int64 `json:"acknowledged"`
	Redelivered  int64 `json:"redelivered"`
	Reused       int64 `json:"reused,omitempty"` // retained for the next epoch

	Report *ReportSum `json:"report,omitempty"` // of the epoch before the current one, once it is known

	Quarantined []BadItem      `json:"quarantined,omitempty"`
	Skipped     []BadItem      `json:"skipped,omitempty"`
	Strangers   []string       `json:"strangers,omitempty"` // files in ready/ that stager did not make
	Readers     []ReaderStatus `json:"readers,omitempty"`
	Waiting     int            `json:"waiting"` // blocked calls of Lease
	Starvation  *Starvation    `json:"starvation,omitempty"`

	Ready         bool `json:"ready"`
	Done          bool `json:"done"`
	OpenFilesSeen bool `json:"openFilesSeen"` // false: the file system does not report open files
	// Cautions lists the guarantees that do not hold on this file system.
	Cautions  []string `json:"cautions,omitempty"`
	LastError string   `json:"lastError,omitempty"`
}

// BadItem is a position that was given up.
type BadItem struct {
	Name   string `json:"name"`
	Epoch  int    `json:"epoch"`
	Pos    int    `json:"pos"`
	Reason string `json:"reason"`
}

// ReaderStatus is the state of one reader.
type ReaderStatus struct {
	ID    string            `json:"id"`
	Held  int               `json:"held"`
	Epoch int               `json:"epoch"`
	Waits map[Cause]float64 `json:"waits"` // seconds in which it waited and held nothing
	// Leases lists the ids of its leases, without claims, which have none. A restarted reader finds
	// here the leases that it does not know of.
	Leases []string `json:"leases,omitempty"`
}

// Status returns the current state.
func (w *Window) Status() Status {
	report := w.lastReport()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accountLocked(time.Now())
	s := Status{
		Input: w.cfg.Input, Dir: w.dir, Plan: w.cfg.planName(), Release: w.cfg.Release,
		Epoch: w.progress.low.epoch, Epochs: w.cfg.Epochs, Beginning: w.cfg.Beginning,
		Items: map[State]int{}, Bytes: map[State]int64{}, Used: w.space.taken(), Limit: w.cfg.Size, Peak: w.space.peak,
		Delivered: w.deliveries.stats.delivered, Acknowledged: w.deliveries.stats.acknowledged, Redelivered: w.deliveries.stats.redelivered, Reused: w.deliveries.stats.reused, Report: report,
		Waiting: len(w.waiting.calls), Strangers: w.scans.foreignNames(), Ready: w.life.ready, Done: w.doneLocked(),
		OpenFilesSeen: w.stage.seesOpen, Cautions: w.cautions(), LastError: w.lastError,
		Starvation: w.starvationLocked(time.Now()),
	}
	s.Positions, s.Finished = w.progress.count()
	for state, t := range w.space.totals {
		s.Items[state], s.Bytes[state] = t.items, t.bytes
	}
	if bad, ok := errors.AsType[*BadItemError](w.life.failed); ok {
		s.Quarantined = append(s.Quarantined, BadItem{bad.Name, bad.Epoch, bad.Pos, bad.Reason})
	}
	s.Skipped = w.deliveries.skippedItems()
	leases := w.leases.byReader()
	for _, rd := range w.readers.sorted() {
		waits := map[Cause]float64{}
		for cause, d := range rd.waits {
			waits[cause] = d.Seconds()
		}
		s.Readers = append(s.Readers, ReaderStatus{rd.name, rd.held, rd.epoch, waits, leases[rd.name]})
	}
	return s
}

// Held returns the ids of a reader's leases.
func (w *Window) Held(reader string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases.byReader()[reader], nil
}

// cautions returns the guarantees that do not hold on this file system.
func (w *Window) cautions() []string {
	if w.stage.seesOpen {
		return nil
	}
	return []string{fmt.Sprintf("the file system of %s (%s) does not report open files: a shard is removed as soon as it is acknowledged, "+
		"even if a process still reads or maps it, and such bytes do not count towards the limit; acknowledge after closing, or put the window on a local disk", w.dir, w.stage.Kind())}
}

// Skipped returns a *SkippedError if positions were skipped, and nil otherwise.
func (w *Window) Skipped() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.deliveries.skipped) == 0 {
		return nil
	}
	return &SkippedError{w.deliveries.skippedItems()}
}
