package window

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// recovery finds out where the last process on this directory stopped, at whatever instant it was
// killed. The places of the files are authoritative. The journal adds acknowledgements, leases and
// the ends that readers have received:
//
//	held, and ready or claimed or elsewhere   published, not acknowledged by the file protocol
//	held alone, or held and done              acknowledged
//	held and whole                            killed during publication: not published
//	whole                                     verified, not published
//	pending, and ready                         killed during a drop: the drop is undone
//	pending                                    to be removed once no process has it open
//
// It runs within New, before any other call, so that its methods need no lock.
type recovery struct {
	*Window
	now    time.Time
	found  map[uint64]place // the files in claimed/ and done/, by inode
	memory memory           // of the journal
}

// run restores the state, and continues its journal.
func (r *recovery) run() error {
	old, err := r.readSmall(stampName)
	if err != nil {
		return err
	}
	removed, err := r.stage.clear()
	if len(removed) > 0 {
		r.log.Warn("removing foreign files from stager's own directories", "files", len(removed), "first", removed[0])
	}
	if err != nil {
		return err
	}
	if r.found, err = r.stage.findings(); err != nil {
		return err
	}
	if err := errors.Join(r.stage.resumeRemoval(), r.takeBack()); err != nil {
		return err
	}
	if err := r.adopt(old); err != nil {
		return err
	}
	if err := r.goBack(); err != nil {
		return err
	}
	if r.journal, r.memory, err = r.openJournal(); err != nil {
		return err
	}
	if r.shares.broadcast() {
		clear(r.memory.leases)
	} else {
		clear(r.memory.shares)
		clear(r.memory.parts)
	}
	if err := r.remember(); err != nil {
		return err
	}
	if err := r.recoverStock(); err != nil {
		return err
	}
	if err := r.recoverPending(); err != nil {
		return err
	}
	r.advanceLocked()
	if err := r.order(); err != nil {
		return err
	}
	for _, e := range r.removals.withdraw() {
		r.reuseLocked(e)
	}
	// Only now: an end may be known from the files alone, and not from the journal.
	for _, rd := range r.readers {
		rd.epoch = min(rd.epoch, r.progress.low.epoch)
	}
	r.measure(r.now)
	r.admitLocked(r.now, func(time.Time) {})
	r.compact()
	return r.sweepIncoming()
}

// adopt makes the state in the directory, which has the stamp old, that of this plan: it drops what belongs
// to another one.
func (r *recovery) adopt(old []byte) error {
	if bytes.Equal(old, stampOf(r.cfg.planName())) {
		return nil
	}
	plan, sameBoot, ok := parseStamp(old)
	samePlan := ok && r.cfg.continues(plan)
	if len(old) == 0 {
		// Older versions did not sync the stamp, so a loss of power could leave it empty.
		m, err := r.readOwnJournal()
		if err != nil {
			return err
		}
		samePlan = m.about
	}
	if !samePlan && r.cfg.Beginning {
		if manifest, known := planIn(r.stage.Root()); manifest != "" || !known {
			return ErrOtherState
		}
	}
	if !samePlan || !sameBoot {
		if err := r.dropState(samePlan); err != nil {
			return err
		}
	}
	return r.renameState(r.cfg.planName())
}

// takeBack undoes a drop that a kill interrupted, so that no file is visible without its link in
// held/.
func (r *recovery) takeBack() error {
	names, err := r.stage.ready.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := r.stage.ready.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !st.Dir && st.Links < 2 {
			continue
		}
		if err != nil {
			return err
		}
		err = r.stage.pendingDir.Move(pendingName(name, st.Ino), r.stage.held, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// dropState drops the state of another plan, or of another boot of the machine, after which it is
// unknown which bytes reached the disk. Positions of the same plan stay finished.
func (r *recovery) dropState(samePlan bool) error {
	held, err := r.stage.held.Names()
	if err != nil {
		return err
	}
	for _, name := range held {
		epoch, end := parseEnd(name)
		if end && samePlan {
			continue
		}
		if end {
			err = r.stage.unmarkEnd(epoch)
		} else {
			err = r.dropHeld(name, samePlan)
		}
		if err != nil {
			return err
		}
	}
	whole, err := r.stage.whole.Names()
	if err != nil {
		return err
	}
	for _, name := range whole {
		if _, err := r.stage.discard(name); err != nil {
			return err
		}
	}
	if samePlan {
		return nil
	}
	return r.stage.Root().RemoveAll(journalName)
}

// dropHeld drops a published file.
func (r *recovery) dropHeld(name string, samePlan bool) error {
	ino, err := r.stage.origin(r.stage.held, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at := r.found[ino]
	if at.reader != "" && !samePlan {
		at = place{} // its reader may be alive and keeps the file until it releases it
	}
	_, err = r.stage.remove(name, ino, at, false)
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
func (r *recovery) remember() error {
	m, p := &r.memory, &r.progress
	p.low = m.low
	if first := (seq{r.cfg.First, 0}); p.low.before(first) {
		p.low = first
	}
	names, err := r.stage.held.Names()
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
		if !k.before(p.low) && k.group < r.cfg.Groups {
			r.shares.parts[k] = true
		}
	}
	for k := range r.shares.parts {
		if r.shares.whole(k.seq) {
			m.finish(k.epoch, k.pos, k.pos) // killed between the records of the last part and of the whole
		}
	}
	maps.DeleteFunc(r.shares.parts, func(k shareKey, _ bool) bool { return m.settled[k.epoch].has(k.pos) })
	for epoch, settled := range m.settled {
		if epoch >= p.low.epoch && !p.over(epoch) {
			p.settled[epoch] = settled
		}
	}
	for _, s := range m.skipped {
		if !p.over(s.epoch) {
			r.deliveries.skipped = append(r.deliveries.skipped, s)
		}
	}
	for a, h := range m.history {
		if !p.finished(a) {
			if h.failures >= failuresOfPoison {
				h.failures = 0 // it failed the epoch; this start is another chance
			}
			r.deliveries.history[a] = h
		}
	}
	r.deliveries.course.recut = m.recut
	for _, id := range m.acked {
		r.leases.acked.add(id)
	}
	p.next = p.low
	if err := r.order(); err != nil {
		return err
	}
	// Only now: the ends that are not marked on disk yet are known.
	for name, epoch := range m.readers {
		r.readers[name] = &reader{name: name, epoch: epoch, waits: map[Cause]time.Duration{}}
	}
	return nil
}

// recoverStock recovers the files in held/ and whole/.
func (r *recovery) recoverStock() error {
	whole, err := r.stage.whole.Names()
	if err != nil {
		return err
	}
	for _, name := range whole {
		st, err := r.stage.verified(name)
		if err != nil {
			return err
		}
		h, err := r.stage.held.Stat(name)
		if err == nil && (h.Ino == st.Ino || h.Dir) {
			err = r.stage.erase(r.stage.held, name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e, err := r.entryOf(name, st)
		if err != nil {
			return err
		}
		if e == nil || r.progress.finished(e.seq) || !r.verifiedHere(e, st) {
			if _, err := r.stage.discard(name); err != nil {
				return err
			}
			continue
		}
		r.add(e, Ready)
		r.landLocked(e)
	}
	held, err := r.stage.held.Names()
	if err != nil {
		return err
	}
	slices.Sort(held) // so that rolling windows start with the oldest
	for _, name := range held {
		if _, end := parseEnd(name); end {
			continue
		}
		st, err := r.stage.linked(r.stage.held, name)
		if err != nil {
			return err
		}
		if err := r.recoverHeld(name, st); err != nil {
			return err
		}
	}
	return nil
}

// recoverHeld recovers one published file.
func (r *recovery) recoverHeld(name string, st disk.Stat) error {
	e, err := r.entryOf(name, st)
	if err != nil {
		return err
	}
	at := r.found[st.Ino]
	visible, err := r.stage.ready.Is(name, st.Ino)
	if err != nil {
		return err
	}
	settled := e != nil && r.progress.finished(e.seq)
	acked := settled || !visible && (st.Links == 1 || at.name != "" && at.reader == "")
	if e != nil && !r.verifiedHere(e, st) && visible && !acked {
		// At once, before a reader finds it; recoverPending counts it while it is open. A file that
		// a reader has claimed is checked when it comes back.
		r.log.Warn("cannot prove that a shard's file was verified, fetching it again", "file", name)
		_, err := r.stage.remove(name, st.Ino, at, false)
		return err
	}
	if e == nil {
		// Of an epoch that is over, or different from the plan: not a position.
		e = &entry{item: orphan, name: name, size: st.Size, beside: r.dirs(st.Dirs), state: Planned, published: true, ino: st.Ino, planned: true}
		e.move(at)
		r.add(e, Zombie)
		r.removals.add(e)
		return nil
	}
	e.published, e.ino = true, st.Ino
	e.move(at)
	given := r.memory.leases[e.seq]
	switch {
	case acked:
		r.add(e, Acked)
		if !settled {
			r.reportLocked(e, Delivery{Reader: cmp.Or(given.reader, at.reader), Attempt: r.deliveries.history[e.seq].attempts + 1})
			if err := r.journal.add("ack", e.seq, given.id); err != nil {
				r.troubleLocked("cannot write the journal", err) // the next start recovers it the same way
			}
			r.deliveries.found()
			r.deliveries.acknowledge()
			if given.id != "" {
				r.leases.acked.add(given.id)
			}
		}
		r.progress.finish(e.seq)
		r.entries.forget(e)
		r.removals.add(e)
	case !visible:
		r.add(e, Ready)
		if at.reader == "" {
			at.reader = elsewhere
		}
		r.claimLocked(r.now, e, at)
	case given.id != "":
		r.add(e, Ready)
		l := &lease{id: given.id, reader: r.readerLocked(r.now, given.reader), e: e, found: true, since: r.now}
		r.leases.resume(l)
		r.deadlineLocked(l, r.now.Add(r.cfg.Reattach))
		l.reader.held++
		r.deliveries.found()
		e.lease = l
		r.deliveries.course.take(l, 1)
		r.deliveries.attempt(e.seq)
		r.moveLocked(e, Leased, "leased before the restart")
	default:
		r.add(e, Ready)
		r.offerLocked(e)
		r.resumeShares(e)
	}
	return nil
}

// verifiedHere reports whether the journal identifies a file as the one that was verified for its
// position. It copies the digest and the mark from the journal.
func (r *recovery) verifiedHere(e *entry, st disk.Stat) bool {
	is, known := r.memory.sums[e.seq]
	e.sum(is.digest)
	e.mark = is.mark
	return known && r.stage.mark(st) == is.mark
}

// entryOf returns the position that a file belongs to; nil if the file does not match the plan.
func (r *recovery) entryOf(name string, st disk.Stat) (*entry, error) {
	a, base, ok := parseName(name)
	if !ok {
		return nil, nil
	}
	if a.epoch == r.progress.low.epoch+1 {
		if err := r.orderOf(a.epoch); err != nil {
			return nil, err
		}
	}
	order, known := r.progress.orders[a.epoch]
	if !known || a.pos >= order.Len() || order.At(a.pos) == others {
		return nil, nil
	}
	item, err := r.items.get(order.At(a.pos))
	if err != nil {
		return nil, err
	}
	fits := st.Size == item.Size || item.UpTo && st.Size < item.Size
	if item.Name != base || !fits || item.Tree != st.Dir || r.entries.has(a) {
		return nil, nil
	}
	e := newEntry(a, order.At(a.pos), item, name)
	e.size = st.Size
	if item.UpTo {
		e.beside += r.dirs(st.Dirs)
	}
	return e, nil
}

// add adds a recovered file.
func (r *recovery) add(e *entry, s State) {
	r.moveLocked(e, s, "found")
	r.fetches.brought = r.fetches.brought || s == Ready
	r.entries.found(e)
	if e.item != orphan {
		r.progress.reserved(e.seq)
	}
}

// recoverPending recovers the files that were left because they were open.
func (r *recovery) recoverPending() error {
	names, err := r.stage.pendingDir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := r.stage.linked(r.stage.pendingDir, name)
		if err != nil {
			return err
		}
		at := r.found[st.Ino]
		if at.reader != "" {
			at = place{} // its reader keeps it until it releases it
		}
		_, name, _ = strings.Cut(name, "-")
		e := &entry{item: orphan, name: name, size: st.Size, beside: r.dirs(st.Dirs), state: Planned, published: true, ino: st.Ino, planned: true}
		e.move(at)
		r.add(e, Zombie)
		r.removals.add(e)
	}
	return nil
}

// sweepIncoming removes the incoming files that no queued fetch will resume.
func (r *recovery) sweepIncoming() error {
	left, err := r.stage.Orphans()
	if err != nil {
		return err
	}
	for _, e := range r.fetches.waiting {
		if left.Claim(e.name) >= e.size {
			r.space.allocate(e, true)
		}
	}
	return left.Sweep()
}
