package window

import "time"

// deliveries records how the positions were delivered: how often each unfinished one was and failed,
// whether they were delivered in order, which were skipped, and the sums since the start, which are
// also metrics. The window's mutex guards it.
type deliveries struct {
	history map[seq]history // of unfinished positions
	skipped []skip
	course  course
	stats   stats
	meters  meters
}

// stats are sums since the start.
type stats struct{ delivered, redelivered, acknowledged, reused int64 }

// attempt counts the next delivery of a position, and returns how many there were.
func (d *deliveries) attempt(a seq) int {
	h := d.history[a]
	h.attempts++
	d.history[a] = h
	return h.attempts
}

// attempted records that a position was delivered at least n times to one of several groups.
func (d *deliveries) attempted(a seq, n int) {
	h := d.history[a]
	h.attempts = max(h.attempts, n)
	d.history[a] = h
}

// withdraw undoes attempt.
func (d *deliveries) withdraw(a seq) {
	h := d.history[a]
	h.attempts--
	d.history[a] = h
}

// blame counts the end of a lease against its position, and returns the position's history. Deaths of
// readers less than deathsApart apart count once.
func (d *deliveries) blame(now time.Time, a seq, against blame) (_ history, counts bool) {
	h := d.history[a]
	counts = against == readerRefused || against == readerDied && now.Sub(h.died) >= deathsApart
	if counts {
		h.failures++
		if against == readerDied {
			h.died = now
		}
		d.history[a] = h
	}
	return h, counts
}

// deliver counts the nth delivery of a shard to a reader.
func (d *deliveries) deliver(l *lease, n int) {
	d.found()
	if n > 1 {
		d.stats.redelivered++
		d.meters.redelivered.Inc()
	}
	d.course.take(l, n)
}

// found counts a delivery that an earlier process made and that ends in this one. So the number of
// acknowledgements never exceeds that of deliveries.
func (d *deliveries) found() {
	d.stats.delivered++
	d.meters.delivered.Inc()
}

// acknowledge counts an acknowledgement.
func (d *deliveries) acknowledge() {
	d.stats.acknowledged++
	d.meters.acknowledged.Inc()
}

// reuse counts a file that was retained for the next epoch.
func (d *deliveries) reuse() {
	d.stats.reused++
	d.meters.reused.Inc()
}

// skip records a position that was skipped.
func (d *deliveries) skip(s skip) {
	d.skipped = append(d.skipped, s)
	d.meters.skipped.Inc()
}

// skippedItems returns the skipped positions.
func (d *deliveries) skippedItems() (items []BadItem) {
	for _, k := range d.skipped {
		items = append(items, BadItem{k.name, k.epoch, k.pos, k.reason})
	}
	return items
}

// recorded reports whether any unfinished position of an epoch has a history.
func (d *deliveries) recorded(epoch int) bool {
	for a := range d.history {
		if a.epoch == epoch {
			return true
		}
	}
	return false
}
