package window

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

const (
	starvePeriod = 5 * time.Minute        // length of a period; the status covers the last one or two
	sampleEvery  = 250 * time.Millisecond // between snapshots while readers wait
	starveLogged = time.Minute            // total wait of all readers that is logged
	starveShare  = 200                    // waits below 1/starveShare of the readers' time are not reported
)

// Starvation reports what readers waited for in the last five to ten minutes while they held
// nothing: the bottleneck, the numbers, and what to change.
type Starvation struct {
	Seconds float64           `json:"seconds"` // sum over all readers
	Of      float64           `json:"of"`      // length of the observation, in seconds
	Readers int               `json:"readers"` // number of readers that waited
	Causes  map[Cause]float64 `json:"causes"`  // seconds by cause
	Cause   Cause             `json:"cause"`   // the cause of the longest wait
	Words   string            `json:"words"`
}

// period is the sums over a few minutes.
type period struct {
	began  time.Time
	waits  map[Cause]time.Duration
	acked  int64 // bytes
	came   int64 // bytes
	whole  int   // fetches
	failed int
	took   time.Duration // total time of the successful fetches
	silent time.Duration // the part of took before the first byte
}

// scene is a snapshot of the window while a reader waited for a cause.
type scene struct {
	at      time.Time
	held    total
	zombies int64
	next    int64 // size of the next shard
	free    int64 // free bytes on the disk
	holders []string
	oldest  time.Duration // the longest time that one of them has held a shard
	silent  time.Duration // the longest time that a fetch has received nothing
}

// starving is the data behind a Starvation.
type starving struct {
	now, before period
	scenes      map[Cause]scene
	logged      time.Time // last log record
}

func newStarving(now time.Time) starving {
	s := starving{scenes: map[Cause]scene{}}
	s.turn(now)
	return s
}

func (s *starving) turn(now time.Time) {
	s.before, s.now = s.now, period{began: now, waits: map[Cause]time.Duration{}}
}

// last returns the sums of the last one or two periods.
func (s *starving) last() period {
	p, was := s.now, s.before
	if was.began.IsZero() {
		return p
	}
	p.began, p.waits = was.began, maps.Clone(p.waits)
	for cause, d := range was.waits {
		p.waits[cause] += d
	}
	p.acked, p.came, p.whole, p.failed = p.acked+was.acked, p.came+was.came, p.whole+was.whole, p.failed+was.failed
	p.took, p.silent = p.took+was.took, p.silent+was.silent
	return p
}

// acked counts the bytes of an acknowledged file.
func (s *starving) acked(size int64) { s.now.acked += size }

// fetched counts a fetch that has ended.
func (s *starving) fetched(now time.Time, e *entry, ok bool) {
	p := &s.now
	if !ok {
		p.failed++
		return
	}
	p.whole++
	p.came += e.size
	p.took += now.Sub(e.fetching.at)
	p.silent += e.flowing()
}

// waited returns the sum of all waits in the current period.
func (s *starving) waited() (sum time.Duration) {
	for _, d := range s.now.waits {
		sum += d
	}
	return sum
}

// sceneLocked takes a snapshot while a reader waits.
func (w *Window) sceneLocked(now time.Time) {
	if now.Sub(w.waiting.starving.scenes[w.waiting.cause].at) < sampleEvery {
		return
	}
	s := scene{at: now, held: w.space.of(Leased), zombies: w.space.of(Zombie).bytes}
	if a, more := w.nextLocked(); more {
		s.next = w.nextItemLocked(a).Size
	}
	if w.waiting.cause == CauseDisk {
		s.free, _ = w.free() // the error was logged when it occurred
	}
	for e := range w.fetches.running {
		if e.flowing() == 0 {
			s.silent = max(s.silent, now.Sub(e.fetching.at))
		}
	}
	if w.waiting.cause == CauseReaders || w.waiting.cause == CauseBudget {
		holds := map[string]int{}
		count := func(l *lease) {
			holds[l.reader.name]++
			s.oldest = max(s.oldest, now.Sub(l.since))
		}
		for _, e := range w.entries.active {
			if e.lease != nil && e.shares() == nil {
				count(e.lease)
			}
			for _, of := range e.shares() {
				if of.lease != nil {
					count(of.lease)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(holds)) {
			s.holders = append(s.holders, fmt.Sprintf("%s (%d)", name, holds[name]))
		}
	}
	w.waiting.starving.scenes[w.waiting.cause] = s
}

// starvationLocked returns nil while the waits are negligible.
func (w *Window) starvationLocked(now time.Time) *Starvation {
	p := w.waiting.starving.last()
	s := Starvation{Of: now.Sub(p.began).Seconds(), Causes: map[Cause]float64{}}
	for _, cause := range causes {
		if d := p.waits[cause]; d > 0 {
			s.Causes[cause] = d.Seconds()
			s.Seconds += d.Seconds()
			if d > p.waits[s.Cause] {
				s.Cause = cause
			}
		}
	}
	active := 0
	for _, rd := range w.readers {
		if rd.held > 0 || rd.asks > 0 || !rd.seen.Before(p.began) {
			active++
		}
		if rd.starved.After(p.began) {
			s.Readers++
		}
	}
	if s.Seconds == 0 || s.Seconds*starveShare < s.Of*float64(active) {
		return nil
	}
	s.Words = fmt.Sprintf("%s waited %s in the last %s, %s of it for %s", english.Plural(s.Readers, "reader", ""), seconds(s.Seconds), seconds(s.Of), seconds(s.Causes[s.Cause]), w.limit(s.Cause, p, s.Of))
	return &s
}

// sayStarvationLocked logs, at most once per period, that readers have waited a minute in total.
func (w *Window) sayStarvationLocked(now time.Time) {
	if !w.waiting.starving.logged.IsZero() && now.Sub(w.waiting.starving.logged) < starvePeriod {
		return
	}
	if w.waiting.starving.waited() < starveLogged {
		return
	}
	if s := w.starvationLocked(now); s != nil {
		w.waiting.starving.logged = now
		w.log.Warn("readers wait for data", "cause", string(s.Cause), "seconds", s.Seconds, "readers", s.Readers, "explanation", s.Words)
	}
}

// limit describes the bottleneck, the numbers that show it, and what to change.
func (w *Window) limit(cause Cause, p period, of float64) string {
	s := w.waiting.starving.scenes[cause]
	rates := fmt.Sprintf("%s/s were received and readers used %s/s", amount(float64(p.came)/of), amount(float64(p.acked)/of))
	each := "no fetch has finished"
	if n := float64(p.whole); n > 0 {
		each = fmt.Sprintf("a fetch takes %s, of which %s until the first byte", seconds(p.took.Seconds()/n), seconds(p.silent.Seconds()/n))
	}
	switch cause {
	case CauseBackend:
		if w.awaitsListLocked() {
			return fmt.Sprintf("the store, which is still listing the source: the first %d shards of its list were fetched, and %s. The next shards follow when the list is complete", w.items.len(), rates)
		}
		silent := ""
		if s.silent > 0 {
			silent = fmt.Sprintf(", one had received nothing for %s", seconds(s.silent.Seconds()))
		}
		return fmt.Sprintf("the store: %s, %d of %d failed%s; with %d in parallel %s. Raise parallel if the store can serve more requests; otherwise use a faster store, or a larger size to bridge slow periods",
			each, p.failed, p.failed+p.whole, silent, w.cfg.Parallel, rates)
	case CauseNetwork:
		return fmt.Sprintf("the network: %s; with %d in parallel %s. Raise limits.bandwidth if the plan sets it, and parallel; if the link is limited to %s/s, readers cannot get more",
			each, w.cfg.Parallel, rates, amount(float64(p.came)/of))
	case CauseDisk:
		return fmt.Sprintf("the disk: %s were free, minFree reserves %s, and the next shard has %s. Remove other files from the disk, lower minFree, or reduce size (now %s)",
			amount(float64(s.free)), amount(float64(w.cfg.MinFree)), amount(float64(s.next)), amount(float64(w.cfg.Size)))
	case CauseBudget:
		largest := w.cfg.Extent.size
		for _, item := range w.items.grown {
			largest = max(largest, item.Size)
		}
		return fmt.Sprintf("space in the window: of its size of %s, readers held %s in %s (%s), %s were in acknowledged files that are still open, and the next shard has %s. Raise size to %s, or have readers hold less at once%s",
			amount(float64(w.cfg.Size)), amount(float64(s.held.bytes)), english.Plural(s.held.items, "shard", ""), strings.Join(s.holders, ", "), amount(float64(s.zombies)), amount(float64(s.next)),
			amount(float64(w.cfg.Size+2*int64(w.cfg.Parallel)*largest)), w.shares.silent())
	case CauseReaders:
		return fmt.Sprintf("other readers: the last %s of the epoch %s held by %s, one for %s. Check the reader that holds a shard longest; more and smaller shards shorten the end of an epoch%s",
			english.Plural(s.held.items, "shard", ""), english.PluralWord(s.held.items, "was", "were"), cmp.Or(strings.Join(s.holders, ", "), "nobody"), seconds(s.oldest.Seconds()), w.shares.silent())
	}
	return string(cause)
}

func seconds(s float64) string { return fmt.Sprintf("%.3g s", s) }

func amount(n float64) string { return humanize.IBytes(uint64(max(n, 0))) }

// flowing returns the time to first byte of a fetch; 0: none has been received.
func (e *entry) flowing() time.Duration {
	f := e.fetching
	if f.in == nil {
		return 0
	}
	if at, began := f.in.Began(); began {
		return max(at.Sub(f.at), 1)
	}
	return 0
}
