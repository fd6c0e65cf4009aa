package window

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// recover finds out where the last process on this directory stopped, at whatever instant it was
// killed. The places of the files are authoritative. The journal adds acknowledgements, leases and
// the ends that readers have received:
//
//	held, and ready or claimed or elsewhere   published, not acknowledged by the file protocol
//	held alone, or held and done              acknowledged
//	held and whole                            killed during publication: not published
//	whole                                     verified, not published
//	pending, and ready                         killed during a drop: the drop is undone
//	pending                                    to be removed once no process has it open
func (w *Window) recover(now time.Time) error {
	plan := fmt.Sprintf("%q\n", w.planName())
	stamp := plan + disk.Boot() + "\n"
	const stampName = disk.Private + "/plan"
	old, err := w.readSmall(stampName)
	if err != nil {
		return err
	}
	removed, err := w.stage.clear()
	if len(removed) > 0 {
		w.log.Warn("removing foreign files from stager's own directories", "files", len(removed), "first", removed[0])
	}
	if err != nil {
		return err
	}
	found, err := w.stage.findings()
	if err != nil {
		return err
	}
	if err := errors.Join(w.stage.resumeRemoval(), w.takeBack()); err != nil {
		return err
	}
	if string(old) != stamp {
		samePlan := strings.HasPrefix(string(old), plan)
		if len(old) == 0 {
			// Older versions did not sync the stamp, so a loss of power could leave it empty.
			m, err := w.readOwnJournal()
			if err != nil {
				return err
			}
			samePlan = m.about
		}
		if err := w.dropState(samePlan, found); err != nil {
			return err
		}
		if err := disk.ReplaceSmall(w.stage.Root(), stampName, []byte(stamp), 0o644, w.durable()); err != nil {
			return err
		}
	}
	if err := w.goBack(found); err != nil {
		return err
	}
	journal, m, err := w.openJournal()
	if err != nil {
		return err
	}
	w.journal = journal
	if w.shares.broadcast() {
		clear(m.leases)
	} else {
		clear(m.shares)
		clear(m.parts)
	}
	if err := w.remember(m); err != nil {
		return err
	}
	if err := w.recoverStock(now, m, found); err != nil {
		return err
	}
	if err := w.recoverPending(found); err != nil {
		return err
	}
	w.advanceLocked()
	if err := w.order(); err != nil {
		return err
	}
	for _, e := range w.removals.withdraw() {
		w.reuseLocked(e)
	}
	// Only now: an end may be known from the files alone, and not from the journal.
	for _, rd := range w.readers {
		rd.epoch = min(rd.epoch, w.progress.low.epoch)
	}
	w.measure(now)
	w.admitLocked(now, func(time.Time) {})
	w.compact()
	return w.sweepIncoming()
}

// takeBack undoes a drop that a kill interrupted, so that no file is visible without its link in
// held/.
func (w *Window) takeBack() error {
	names, err := w.stage.ready.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := w.stage.ready.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !st.Dir && st.Links < 2 {
			continue
		}
		if err != nil {
			return err
		}
		err = w.stage.pendingDir.Move(pendingName(name, st.Ino), w.stage.held, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// dropState drops the state of another plan, or of another boot of the machine, after which it is
// unknown which bytes reached the disk. Positions of the same plan stay finished.
func (w *Window) dropState(samePlan bool, found map[uint64]place) error {
	held, err := w.stage.held.Names()
	if err != nil {
		return err
	}
	for _, name := range held {
		epoch, end := parseEnd(name)
		if end && samePlan {
			continue
		}
		if end {
			err = w.stage.unmarkEnd(epoch)
		} else {
			err = w.dropHeld(name, samePlan, found)
		}
		if err != nil {
			return err
		}
	}
	whole, err := w.stage.whole.Names()
	if err != nil {
		return err
	}
	for _, name := range whole {
		if _, err := w.stage.discard(name); err != nil {
			return err
		}
	}
	if samePlan {
		return nil
	}
	return w.stage.Root().RemoveAll(journalName)
}

// dropHeld drops a published file.
func (w *Window) dropHeld(name string, samePlan bool, found map[uint64]place) error {
	ino, err := w.stage.origin(w.stage.held, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at := found[ino]
	if at.reader != "" && !samePlan {
		at = place{} // its reader may be alive and keeps the file until it releases it
	}
	_, err = w.stage.remove(name, ino, at, false)
	return err
}

// readSmall reads a small file of the window's own; nil if there is none. An object that is not a
// regular file, or too large, counts as missing, and is replaced by the next write.
func (w *Window) readSmall(name string) ([]byte, error) {
	text, err := disk.ReadSmall(w.stage.Root(), name, disk.Limit)
	if err != nil && w.ignored(name, err) {
		return nil, nil
	}
	return text, err
}

// ignored reports whether a file of the window's own counts as missing. It logs if another program
// replaced the file.
func (w *Window) ignored(name string, err error) bool {
	var odd *disk.NotRegularError
	var large *disk.TooLargeError
	if errors.As(err, &odd) && !odd.Mode.IsDir() || errors.As(err, &large) {
		w.log.Warn("ignoring one of stager's own files that another program replaced", "file", name, "error", err)
		return true
	}
	return errors.Is(err, fs.ErrNotExist)
}

// remember restores the state from the journal.
func (w *Window) remember(m memory) error {
	p := &w.progress
	p.low = m.low
	if first := (seq{w.cfg.First, 0}); p.low.before(first) {
		p.low = first
	}
	names, err := w.stage.held.Names()
	if err != nil {
		return err
	}
	// An END marker on disk is proof, too.
	for _, name := range names {
		if epoch, end := parseEnd(name); end && epoch >= p.low.epoch && !p.over(epoch) {
			p.low = seq{epoch + 1, 0}
		}
	}
	for k := range m.parts {
		if !k.before(p.low) && k.group < w.cfg.Groups {
			w.shares.parts[k] = true
		}
	}
	for k := range w.shares.parts {
		if w.shares.whole(k.seq) {
			m.settled[k.seq] = true // killed between the records of the last part and of the whole
		}
	}
	for a := range m.settled {
		w.shares.forget(a)
		if !p.over(a.epoch) {
			p.finish(a)
		}
	}
	for _, s := range m.skipped {
		if !p.over(s.epoch) {
			w.deliveries.skipped = append(w.deliveries.skipped, s)
		}
	}
	for a, h := range m.history {
		if !p.finished(a) {
			if h.failures >= failuresOfPoison {
				h.failures = 0 // it failed the epoch; this start is another chance
			}
			w.deliveries.history[a] = h
		}
	}
	w.deliveries.course.recut = m.recut
	for _, id := range m.acked {
		w.leases.acked.add(id)
	}
	p.next = p.low
	if err := w.order(); err != nil {
		return err
	}
	// Only now: the ends that are not marked on disk yet are known.
	for name, epoch := range m.readers {
		w.readers[name] = &reader{name: name, epoch: epoch, waits: map[Cause]time.Duration{}}
	}
	return nil
}

// recoverStock recovers the files in held/ and whole/.
func (w *Window) recoverStock(now time.Time, m memory, found map[uint64]place) error {
	whole, err := w.stage.whole.Names()
	if err != nil {
		return err
	}
	for _, name := range whole {
		st, err := w.stage.verified(name)
		if err != nil {
			return err
		}
		h, err := w.stage.held.Stat(name)
		if err == nil && (h.Ino == st.Ino || h.Dir) {
			err = w.stage.erase(w.stage.held, name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e, err := w.entryOf(name, st)
		if err != nil {
			return err
		}
		if e == nil || w.progress.finished(e.seq) || !w.verifiedHere(e, st, m) {
			if _, err := w.stage.discard(name); err != nil {
				return err
			}
			continue
		}
		w.foundLocked(e, Ready)
		e.since = now
		w.landLocked(e)
	}
	held, err := w.stage.held.Names()
	if err != nil {
		return err
	}
	slices.Sort(held) // so that rolling windows start with the oldest
	for _, name := range held {
		if _, end := parseEnd(name); end {
			continue
		}
		st, err := w.stage.linked(w.stage.held, name)
		if err != nil {
			return err
		}
		if err := w.recoverHeld(now, name, st, m, found); err != nil {
			return err
		}
	}
	return nil
}

// recoverHeld recovers one published file.
func (w *Window) recoverHeld(now time.Time, name string, st disk.Stat, m memory, found map[uint64]place) error {
	e, err := w.entryOf(name, st)
	if err != nil {
		return err
	}
	at := found[st.Ino]
	visible, err := w.stage.ready.Is(name, st.Ino)
	if err != nil {
		return err
	}
	settled := e != nil && w.progress.finished(e.seq)
	acked := settled || !visible && (st.Links == 1 || at.name != "" && at.reader == "")
	if e != nil && !w.verifiedHere(e, st, m) && visible && !acked {
		// At once, before a reader finds it; recoverPending counts it while it is open. A file that
		// a reader has claimed is checked when it comes back.
		w.log.Warn("cannot prove that a shard's file was verified, fetching it again", "file", name)
		_, err := w.stage.remove(name, st.Ino, at, false)
		return err
	}
	if e == nil {
		// Of an epoch that is over, or different from the plan: not a position.
		e = &entry{item: orphan, name: name, size: st.Size, beside: w.dirs(st.Dirs), state: Planned, published: true, ino: st.Ino, at: at, planned: true}
		w.foundLocked(e, Zombie)
		w.removals.add(e)
		return nil
	}
	e.published, e.ino, e.at = true, st.Ino, at
	e.since = now
	given := m.leases[e.seq]
	switch {
	case acked:
		w.foundLocked(e, Acked)
		if !settled {
			w.reportLocked(e, Delivery{Reader: cmp.Or(given.reader, at.reader), Attempt: w.deliveries.history[e.seq].attempts + 1})
			if err := w.journal.add("ack", e.seq, given.id); err != nil {
				w.troubleLocked("cannot write the journal", err) // the next start recovers it the same way
			}
			w.deliveries.found()
			w.deliveries.acknowledge()
			if given.id != "" {
				w.leases.acked.add(given.id)
			}
		}
		w.progress.finish(e.seq)
		w.entries.forget(e)
		w.removals.add(e)
	case !visible:
		w.foundLocked(e, Ready)
		if at.reader == "" {
			at.reader = elsewhere
		}
		w.claimLocked(now, e, at)
	case given.id != "":
		w.foundLocked(e, Ready)
		l := &lease{id: given.id, reader: w.readerLocked(now, given.reader), e: e, found: true, since: now}
		w.leases.resume(l)
		w.deadlineLocked(l, now.Add(w.cfg.Reattach))
		l.reader.held++
		w.deliveries.found()
		e.lease = l
		w.deliveries.course.take(l, 1)
		w.deliveries.attempt(e.seq)
		w.moveLocked(e, Leased, "leased before the restart")
	default:
		w.foundLocked(e, Ready)
		w.offerLocked(e)
		w.resumeSharesLocked(now, e, m)
	}
	return nil
}

// verifiedHere reports whether the journal identifies a file as the one that was verified for its
// position. It copies the digest and the mark from the journal.
func (w *Window) verifiedHere(e *entry, st disk.Stat, m memory) bool {
	is, known := m.sums[e.seq]
	e.digest, e.mark = is.digest, is.mark
	return known && w.stage.mark(st) == is.mark
}

// entryOf returns the position that a file belongs to; nil if the file does not match the plan.
func (w *Window) entryOf(name string, st disk.Stat) (*entry, error) {
	a, base, ok := parseName(name)
	if !ok {
		return nil, nil
	}
	if a.epoch == w.progress.low.epoch+1 {
		if err := w.orderOf(a.epoch); err != nil {
			return nil, err
		}
	}
	order, known := w.progress.orders[a.epoch]
	if !known || a.pos >= len(order) || order[a.pos] == others {
		return nil, nil
	}
	item, err := w.items.get(int(order[a.pos]))
	if err != nil {
		return nil, err
	}
	fits := st.Size == item.Size || item.UpTo && st.Size < item.Size
	if item.Name != base || !fits || item.Tree != st.Dir || w.entries.has(a) {
		return nil, nil
	}
	beside := item.Beside
	if item.UpTo {
		beside += w.dirs(st.Dirs)
	}
	return &entry{seq: a, item: int(order[a.pos]), of: item, name: name, size: st.Size, beside: beside, state: Planned}, nil
}

// foundLocked adds a recovered file.
func (w *Window) foundLocked(e *entry, s State) {
	w.moveLocked(e, s, "found")
	w.fetches.brought = w.fetches.brought || s == Ready
	w.entries.found(e)
	if e.item != orphan {
		w.progress.reserved(e.seq)
	}
}

// recoverPending recovers the files that were left because they were open.
func (w *Window) recoverPending(found map[uint64]place) error {
	names, err := w.stage.pendingDir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := w.stage.linked(w.stage.pendingDir, name)
		if err != nil {
			return err
		}
		at := found[st.Ino]
		if at.reader != "" {
			at = place{} // its reader keeps it until it releases it
		}
		_, name, _ = strings.Cut(name, "-")
		e := &entry{item: orphan, name: name, size: st.Size, beside: w.dirs(st.Dirs), state: Planned, published: true, ino: st.Ino, at: at, planned: true}
		w.foundLocked(e, Zombie)
		w.removals.add(e)
	}
	return nil
}

// sweepIncoming removes the incoming files that no queued fetch will resume.
func (w *Window) sweepIncoming() error {
	left, err := w.stage.Orphans()
	if err != nil {
		return err
	}
	for _, e := range w.fetches.waiting {
		if left.Claim(e.name) >= e.size {
			w.space.allocate(e, true)
		}
	}
	return left.Sweep()
}
