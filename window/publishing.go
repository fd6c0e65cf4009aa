package window

import (
	"slices"
	"time"
)

// publishing holds the Ready entries that have no name in ready/ yet. Those of the current epoch wait
// until start returns them, and then are shown until ended. Those of the next epoch are kept for
// later, so that readers that use only the file protocol cannot run past the end of an epoch. The
// window's mutex guards it.
type publishing struct {
	waiting []unpublished
	running int
	later   []*entry
}

// unpublished is an entry that waits to be published. It may no longer be Ready.
type unpublished struct {
	*entry
	notBefore time.Time // no attempt before
}

// add adds an entry; with later it waits for begin.
func (p *publishing) add(e *entry, later bool) {
	if later {
		p.later = append(p.later, e)
	} else {
		p.waiting = append(p.waiting, unpublished{entry: e})
	}
}

// begin releases the entries of an epoch that has become the current one.
func (p *publishing) begin(epoch int) {
	p.later = slices.DeleteFunc(p.later, func(e *entry) bool {
		if e.epoch == epoch {
			p.waiting = append(p.waiting, unpublished{entry: e})
		}
		return e.epoch <= epoch
	})
}

// start returns the entries to publish now. From now on they are being shown.
func (p *publishing) start(now time.Time, alarm func(time.Time)) (show []*entry) {
	p.waiting = slices.DeleteFunc(p.waiting, func(e unpublished) bool {
		switch {
		case e.state != Ready:
			return true // it was dropped meanwhile
		case len(show) >= atOnce:
			return false
		case now.Before(e.notBefore):
			alarm(e.notBefore)
			return false
		}
		e.showing = true
		p.running++
		show = append(show, e.entry)
		return true
	})
	return show
}

// ended records that publishing an entry has ended, with or without success.
func (p *publishing) ended(e *entry) {
	e.showing = false
	p.running--
}

// retry adds an entry again that could not be published.
func (p *publishing) retry(now time.Time, e *entry) {
	p.waiting = append(p.waiting, unpublished{e, now.Add(lookEvery)})
}

// count returns the number of entries of the current epoch that wait or are being shown.
func (p *publishing) count() int { return len(p.waiting) + p.running }
