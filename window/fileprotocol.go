package window

import (
	"errors"
	"io/fs"
	"time"
)

// elsewhere is the pseudo-reader of a file that was moved to an unknown place.
const elsewhere = "(elsewhere)"

// scan detects what readers did through the file protocol.
func (w *Window) scan() {
	began := time.Now()
	w.mend()
	// The order matters: a file that moves from ready/ to claimed/ to done/ meanwhile is seen at
	// least once. Files that seem missing are checked again, one by one, under the lock.
	names, err := w.stage.ready.Names()
	var found map[uint64]place
	if err == nil {
		found, err = w.stage.findings()
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.scans.done(began, now)
	if err != nil {
		w.troubleLocked("cannot list the window's directories", err)
		return
	}
	visible := make(map[string]bool, len(names))
	for _, name := range names {
		visible[name] = true
	}
	for _, e := range w.entries.active {
		claimed := e.lease != nil && e.lease.claim()
		if e.published && (e.state == Ready || e.state == Leased) && (claimed || !visible[e.name]) {
			w.findLocked(now, e, found)
		}
	}
	w.removals.released(now, found)
	w.strangersLocked(names)
	w.serveLocked(now)
}

// mend restores the modes of the window's directories if another program changed them.
func (w *Window) mend() {
	switch mended, err := w.stage.Mend(); {
	case err != nil:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.troubleLocked("cannot restore the mode of a directory", err)
	case mended > 0:
		w.log.Warn("another program changed the modes of stager's directories, modes restored", "directories", mended)
	}
}

// findLocked finds out what happened to a published file that is missing in ready/, or is there
// again.
func (w *Window) findLocked(now time.Time, e *entry, found map[uint64]place) {
	if st, err := w.stage.ready.Stat(e.name); err == nil && st.Ino == e.ino {
		if e.lease != nil && e.lease.claim() && w.stage.mark(st) != e.mark {
			w.lostLocked(now, e)
			return
		}
		if e.lease != nil && e.lease.claim() {
			e.move(place{})
			w.dropLeaseLocked(e)
			w.moveLocked(e, Ready, "put back")
			w.offerLocked(e)
			w.note()
		}
		return
	}
	at, somewhere := found[e.ino]
	look := w.stage.linked
	if somewhere {
		look = w.stage.glimpse
	}
	st, err := look(w.stage.held, e.name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && st.Ino != e.ino:
		w.lostLocked(now, e)
	case err != nil:
		w.troubleLocked("cannot stat a shard's file", err)
	case st.Links == 1:
		w.ackByFileLocked(e, "unlinked")
	case somewhere && at.reader == "":
		e.move(at)
		w.ackByFileLocked(e, "moved to done/")
	case somewhere:
		w.claimLocked(now, e, at)
	case e.lease == nil:
		// It has another name that the scan did not see: some reader holds it.
		w.claimLocked(now, e, place{reader: elsewhere})
	}
}

func (w *Window) ackByFileLocked(e *entry, how string) {
	id := ""
	if e.lease != nil {
		id = e.lease.id
	}
	w.reportLocked(e, Delivery{Attempt: 1})
	if err := w.journal.add("ack", e.seq, id); err != nil {
		w.troubleLocked("cannot write the journal", err) // the state of the disk records it
	}
	if id != "" {
		w.leases.acked.add(id)
	}
	w.ackLocked(e, how)
}

// claimLocked leases a file to the reader in whose directory it lies.
func (w *Window) claimLocked(now time.Time, e *entry, at place) {
	e.move(at)
	if l := e.lease; l != nil && (l.reader.name == at.reader || l.claim() && at.reader == elsewhere) {
		return
	} else if l != nil && l.reader.name == elsewhere {
		rd := w.readerLocked(now, at.reader)
		l.reader.held--
		rd.held++
		l.reader = rd
		return
	}
	if e.lease != nil {
		// The place of the file decides, even if another reader holds a lease on it.
		if err := w.journal.add("gone", e.lease.id, e.seq); err != nil {
			w.troubleLocked("cannot write the journal", err) // after a kill the file's place is enough
		}
		w.dropLeaseLocked(e)
		w.moveLocked(e, Ready, "moved away by a reader")
	}
	rd := w.readerLocked(now, at.reader)
	rd.seen = now
	w.deliverLocked(e, &lease{reader: rd, e: e}, "claimed by "+at.reader)
}

// lostLocked fetches a position again whose link in held/ was removed: it is unknown whether the
// shard was still needed.
func (w *Window) lostLocked(now time.Time, e *entry) {
	if e.shares() != nil || e.lease != nil && e.lease.claim() {
		w.dropLeaseLocked(e)
		w.moveLocked(e, Ready, "file lost")
	} else if e.lease != nil {
		w.returnLocked(now, e.lease, "file lost", noBlame)
	}
	w.replanLocked(e, "its link in .stager/held was removed or changed")
	w.note()
}

// strangersLocked logs each foreign file in ready/ once, and leaves it in place.
func (w *Window) strangersLocked(names []string) {
	var foreign []string
	for _, name := range names {
		if w.entries.named(name) != nil {
			continue
		}
		if _, end := parseEnd(name); end {
			continue
		}
		foreign = append(foreign, name)
	}
	for _, name := range w.scans.saw(foreign) {
		w.log.Warn("ignoring a foreign file in ready/", "file", name)
	}
}
