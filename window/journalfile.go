package window

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// journal appends records. Each line is one write, so that a kill tears at most one.
//
// A record survives a kill once add returns. It survives a loss of power once sync, or write and
// replace, have returned. sync runs every syncEvery, so that at most the records since then are
// lost, and their shards redelivered.
type journal struct {
	file    *os.File
	reserve int64 // bytes preallocated on the disk
	durable disk.Durable
	size    int64 // in bytes
	fresh   int64 // its size after the last compaction
	lines   int   // since the last compaction
	torn    bool  // the last write failed or was partial
	stale   bool  // it names a plan of which the current one is more
	dirty   bool  // the last records may not be on the disk
	buf     []byte

	rewriting bool
	since     []byte // records added during a compaction

	work journalWork
}

// syncEvery is the longest time that a record may be missing on the disk.
const syncEvery = 5 * time.Second

// add writes a record. If it returns nil, the record survives a kill.
func (j *journal) add(kind string, words ...any) error {
	b := j.buf[:0]
	if j.torn {
		b = append(b, '\n')
	}
	from := len(b)
	b = appendFact(b, kind, words...)
	j.buf = sealLine(b, from)
	_, err := j.file.Write(j.buf)
	j.torn = err != nil
	j.dirty = true
	j.size += int64(len(j.buf))
	j.lines++
	if j.rewriting {
		j.since = append(j.since, j.buf[from:]...)
	}
	return err
}

// records returns m as the lines of a journal.
func (m *memory) records(plan string) (b []byte) {
	fact := func(kind string, words ...any) { from := len(b); b = sealLine(appendFact(b, kind, words...), from) }
	fact("plan", plan)
	fact("low", m.low)
	for _, s := range m.skipped {
		fact("skip", s.seq, s.name, s.reason)
	}
	for epoch, settled := range m.settled {
		for _, s := range settled {
			if a := (seq{epoch, s[0]}); s[0] == s[1] {
				fact("ack", a, "")
			} else {
				fact("span", a, s[1])
			}
		}
	}
	for a, h := range m.history {
		fact("try", a, h.attempts, h.failures, h.used)
	}
	if m.recut {
		fact("recut")
	}
	for a, g := range m.leases {
		fact("lease", g.id, g.reader, a)
	}
	for k, g := range m.shares {
		fact("share", g.id, g.reader, k.seq, k.group)
	}
	for k := range m.parts {
		fact("part", k.seq, k.group, "")
	}
	for _, id := range m.acked {
		fact("acked", id)
	}
	for name, epoch := range m.readers {
		fact("reader", name, epoch)
	}
	for a, sum := range m.sums {
		fact("sum", a, sum.digest, sum.mark.Inode, sum.mark.Time)
	}
	return b
}

// write writes the records to a new file beside the journal, and returns once they are on the disk:
// a loss of power must not replace the journal with an empty file. It preallocates space for later
// records, so that they can be written even if other programs fill the disk.
func (j *journal) write(root *os.Root, records []byte) (*disk.Replacing, error) {
	next, err := disk.Replacement(root, journalName, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err = next.Write(records); err == nil {
		if j.reserve > int64(len(records)) {
			_ = sys.Reserve(next.File, j.reserve) // if the file system can
		}
		if j.durable {
			err = next.Sync()
		}
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// replace continues with the file that write made. The caller then calls finish.
func (j *journal) replace(next *disk.Replacing) error {
	_, err := next.Write(j.since)
	if err == nil {
		err = next.Commit()
	}
	if err != nil {
		return errors.Join(err, next.Close())
	}
	old := j.file
	var size int64
	if info, err := next.Stat(); err == nil {
		size = info.Size()
	}
	*j = journal{file: next.File, reserve: j.reserve, durable: j.durable, buf: j.buf, size: size, fresh: size, dirty: len(j.since) > 0, work: j.work}
	if old != nil {
		return old.Close()
	}
	return nil
}

// finish returns once the journal's new name is on the disk.
func finish(next *disk.Replacing, durable disk.Durable) (err error) {
	if durable {
		err = next.SyncName()
	}
	_, derr := next.Detach()
	return errors.Join(err, derr)
}

// rewrite replaces the journal by one with exactly these records.
func (j *journal) rewrite(root *os.Root, plan string, m memory) error {
	next, err := j.write(root, m.records(plan))
	if err == nil {
		if err = j.replace(next); err == nil {
			err = finish(next, j.durable)
		}
	}
	return err
}

func (j *journal) close() error {
	if j == nil || j.file == nil {
		return nil
	}
	var err error
	if j.dirty && bool(j.durable) {
		err = j.file.Sync()
	}
	return errors.Join(err, j.file.Close())
}

// readOwnJournal returns what the journal says about this plan. Without a journal that is nothing.
func (w *Window) readOwnJournal() (memory, error) {
	m := newMemory()
	file, err := disk.OpenFile(w.stage.Root(), journalName, os.O_RDONLY, 0)
	if err == nil {
		m, err = readJournal(io.LimitReader(file, journalLimit), w.cfg.continues)
		file.Close() //nolint:errcheck // opened for reading
	}
	if err != nil && !w.ignored(journalName, err) {
		return m, fmt.Errorf("cannot read the position in the epoch from %s, nothing was changed: %w", filepath.Join(w.dir, journalName), err)
	}
	return m, nil
}

// openJournal reads the records about the plan and continues in the same file, which needs no space
// on the disk; compact rewrites it. A read error does not discard the journal: it leaves everything
// unchanged and is returned.
func (w *Window) openJournal() (*journal, memory, error) {
	root := w.stage.Root()
	m, err := w.readOwnJournal()
	if err != nil {
		return nil, m, err
	}
	j := &journal{durable: w.durable(), reserve: w.cfg.journalReserve(), torn: true} // its last line may be torn
	if m.about {
		j.file, err = disk.OpenOwn(root, journalName, os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, m, err
		}
		if info, err := j.file.Stat(); err == nil && info.Size() > 0 {
			j.size, j.fresh = info.Size(), info.Size()
			return j, m, nil
		}
	}
	return j, m, j.rewrite(root, w.cfg.planName(), m)
}

// compact rewrites the journal with only the records that still matter. Records added meanwhile go
// to both files.
func (w *Window) compact() {
	plan, next, err := w.writeCompacted()
	w.replaceJournal(plan, next, err)
}

// writeCompacted writes the file that is to replace the journal, and returns the plan that it names.
func (w *Window) writeCompacted() (plan string, next *disk.Replacing, err error) {
	w.mu.Lock()
	plan = w.cfg.planName()
	records := w.snapshotLocked()
	w.journal.rewriting, w.journal.since = true, nil
	w.mu.Unlock()
	next, err = w.journal.write(w.stage.Root(), records)
	return plan, next, err
}

// replaceJournal ends the compaction for which writeCompacted has returned its arguments.
func (w *Window) replaceJournal(plan string, next *disk.Replacing, err error) {
	w.mu.Lock()
	w.journal.rewriting = false
	if err == nil {
		err = w.journal.replace(next)
	}
	if err == nil {
		w.journal.stale = plan != w.cfg.planName() // Continue came meanwhile
	}
	if err != nil {
		w.troubleLocked("cannot rewrite the journal", err)
		w.journal.compactFailed(time.Now())
		if failKind(err) == failDisk {
			w.relieveLocked("journal needs space")
		}
	}
	w.mu.Unlock()
	if err != nil {
		return
	}
	if err := finish(next, w.durable()); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.troubleLocked("cannot sync the journal", err)
	}
}

// snapshotLocked returns the records of a compacted journal.
func (w *Window) snapshotLocked() []byte {
	m := newMemory()
	m.low, m.settled, m.skipped, m.acked, m.recut = w.progress.low, w.progress.settled, w.deliveries.skipped, w.leases.acked.ids(), w.deliveries.course.recut
	for a, h := range w.deliveries.history {
		if e := w.entries.active[a]; e != nil && e.lease != nil && e.shares() == nil {
			h.attempts-- // the lease, or the place of the file, already counts the delivery in progress
		}
		m.history[a] = h
	}
	for id, l := range w.leases.byID {
		if l.e.shares() != nil {
			m.shares[shareKey{l.e.seq, l.group}] = grant{id, l.reader.name}
		} else {
			m.leases[l.e.seq] = grant{id, l.reader.name}
		}
	}
	m.parts = w.shares.parts
	for name, rd := range w.readers {
		m.readers[name] = rd.epoch
	}
	for a, e := range w.entries.active {
		if e.state == Ready || e.state == Leased {
			m.sums[a] = w.stagedLocked(e)
		}
	}
	return m.records(w.cfg.planName())
}

// syncJournal syncs the journal to the disk.
func (w *Window) syncJournal() {
	w.mu.Lock()
	file := w.journal.file
	w.journal.dirty = false
	w.mu.Unlock()
	var err error
	if w.durable() {
		err = file.Sync()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal.work.syncing = false
	if err != nil && w.journal.file == file { // otherwise the new file was synced
		w.journal.dirty = true
		w.troubleLocked("cannot sync the journal", err)
	}
}
