package window

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Status is what a window tells about itself, for people and programs.
type Status struct {
	Input   string  `json:"input"`
	Dir     string  `json:"dir"`
	Plan    string  `json:"plan"`
	Release Release `json:"release"`

	Epoch     int `json:"epoch"`            // the current one, from 0
	Epochs    int `json:"epochs,omitempty"` // 0: without end
	Positions int `json:"positions"`        // of the current epoch
	Finished  int `json:"settled"`          // of these: acknowledged or skipped

	Items map[State]int   `json:"items"` // in the window, by state
	Bytes map[State]int64 `json:"bytes"`
	Used  int64           `json:"usedBytes"`
	Limit int64           `json:"limitBytes"`
	Peak  int64           `json:"peakBytes"` // since the start

	// Since the start.
	Delivered    int64 `json:"delivered"`
	Acknowledged int64 `json:"acknowledged"`
	Redelivered  int64 `json:"redelivered"`
	Reused       int64 `json:"reused,omitempty"` // stayed for the next epoch

	Report *ReportSum `json:"report,omitempty"` // of the epoch before the current one

	Quarantined []BadItem      `json:"quarantined,omitempty"`
	Skipped     []BadItem      `json:"skipped,omitempty"`
	Strangers   []string       `json:"strangers,omitempty"` // files in ready/ that stager did not make
	Readers     []ReaderStatus `json:"readers,omitempty"`
	Waiting     int            `json:"waiting"` // calls for a shard that wait now
	Starvation  *Starvation    `json:"starvation,omitempty"`

	Ready         bool `json:"ready"`
	Done          bool `json:"done"`
	OpenFilesSeen bool `json:"openFilesSeen"` // false: the file system does not tell who has files open
	// Cautions say what is promised elsewhere and cannot be here.
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

// ReaderStatus is one reader.
type ReaderStatus struct {
	ID    string            `json:"id"`
	Held  int               `json:"held"`
	Epoch int               `json:"epoch"`
	Waits map[Cause]float64 `json:"waits"` // seconds in which it waited and held nothing
	// Leases are what it holds, but for claims, which have no name: a reader that was
	// killed finds here what it does not know that it was given.
	Leases []string `json:"leases,omitempty"`
}

// Status tells how things stand.
func (w *Window) Status() Status {
	report := w.lastReport()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accountLocked(time.Now())
	s := Status{
		Input: w.cfg.Input, Dir: w.dir, Plan: w.planName(), Release: w.cfg.Release,
		Epoch: w.low.epoch, Epochs: w.cfg.Epochs,
		Items: map[State]int{}, Bytes: map[State]int64{}, Used: w.used + w.own, Limit: w.cfg.Size, Peak: w.peak,
		Delivered: w.stats.delivered, Acknowledged: w.stats.acknowledged, Redelivered: w.stats.redelivered, Reused: w.stats.reused, Report: report,
		Waiting: len(w.waiters), Strangers: w.strangerNames(), Ready: w.ready, Done: w.doneLocked(),
		OpenFilesSeen: w.stage.seesOpen, Cautions: w.cautions(), LastError: w.lastError,
		Starvation: w.starvationLocked(time.Now()),
	}
	for pos, item := range w.orders[w.low.epoch] {
		if item == others {
			continue
		}
		s.Positions++
		if pos < w.low.pos || w.settled[seq{w.low.epoch, pos}] {
			s.Finished++
		}
	}
	for state, t := range w.totals {
		s.Items[state], s.Bytes[state] = t.items, t.bytes
	}
	if bad, ok := errors.AsType[*BadItemError](w.failed); ok {
		s.Quarantined = append(s.Quarantined, BadItem{bad.Name, bad.Epoch, bad.Pos, bad.Reason})
	}
	s.Skipped = w.skippedLocked()
	leases := w.leasesLocked()
	for _, rd := range slices.SortedFunc(maps.Values(w.readers), func(a, b *reader) int { return cmp.Compare(a.name, b.name) }) {
		waits := map[Cause]float64{}
		for cause, d := range rd.waits {
			waits[cause] = d.Seconds()
		}
		s.Readers = append(s.Readers, ReaderStatus{rd.name, rd.held, rd.epoch, waits, leases[rd.name]})
	}
	return s
}

// leasesLocked are the leases by reader, in the order of their names.
func (w *Window) leasesLocked() map[string][]string {
	of := make(map[string][]string)
	for _, id := range slices.Sorted(maps.Keys(w.leases)) {
		if l := w.leases[id]; !l.claim() {
			of[l.reader.name] = append(of[l.reader.name], id)
		}
	}
	return of
}

// Held are the leases of a reader.
func (w *Window) Held(reader string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leasesLocked()[reader], nil
}

// cautions are what this directory's file system takes away from the promises.
func (w *Window) cautions() []string {
	if w.stage.seesOpen {
		return nil
	}
	return []string{fmt.Sprintf("the file system of %s (%s) does not tell who has files open: a shard goes as soon as it is acknowledged, "+
		"also while somebody reads or maps it, and such bytes are not counted in the limit; acknowledge after closing, or put the window on a local disk", w.dir, w.stage.Kind())}
}

// skippedLocked lists the positions that were left out.
func (w *Window) skippedLocked() (items []BadItem) {
	for _, k := range w.skipped {
		items = append(items, BadItem{k.name, k.epoch, k.pos, k.reason})
	}
	return items
}

// Skipped returns a *SkippedError when positions were left out, and nil otherwise.
func (w *Window) Skipped() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.skipped) == 0 {
		return nil
	}
	return &SkippedError{w.skippedLocked()}
}
