package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// entry is an incomplete checkpoint of the directory.
type entry struct {
	step    int64
	print   string
	since   time.Time     // first seen in this state
	changed time.Time     // when its files reached this state
	first   time.Time     // first seen in any state
	warned  bool          // that it is overdue
	renamed bool          // renamed from a temporary name
	reason  string        // why it is not complete
	word    string        // reason in one word; empty: see reason
	refused bool          // waiting does not help: somebody must change it
	fault   bool          // it may be complete but cannot be saved
	wait    time.Duration // time until it may be complete if nothing changes; 0: unknown
	opened  int           // how many scans found it complete, but for a file that is open for writing

	// With several nodes: the view of its files, and the files.
	view  string
	files []local
	late  string // a file that was written after the checkpoint was announced as complete
}

// scan finds complete checkpoints and takes snapshots of them. With ended, the trainer has exited
// successfully, so everything that nobody has open is complete at once.
func (u *Uploader) scan(ended bool) error {
	u.directory.Lock()
	defer u.directory.Unlock()
	return u.scanDirectory(ended)
}

// scanDirectory is scan. The caller holds directory.
func (u *Uploader) scanDirectory(ended bool) error {
	began := time.Now()
	u.holding.Store(0)
	if err := errors.Join(u.restoreMode(private), u.restoreMode(snapshotsName)); err != nil {
		return err
	}
	u.mu.Lock()
	u.listings.begun++
	before := u.listings.last
	u.mu.Unlock()
	entries, err := fs.ReadDir(disk.FS(u.root), ".")
	if err != nil {
		return fmt.Errorf("the output directory: %w", err)
	}
	names, claimed := make(map[string]int64), make(map[string]string)
	if u.cfg.Mode == ModeCheckpoint {
		names, claimed = candidates(entries)
	}
	u.number(names, claimed, entries)
	u.renames.forget()
	unfinished, temporary := unfinishedOnes(entries)
	u.positions.note(names, unfinished, began)
	u.mu.Lock()
	was := u.listings.temporary
	u.listings.temporary = temporary
	gone := u.removedLocked(names)
	u.mu.Unlock()
	u.detection.forget(names)
	u.forgetShipped()
	later := u.laterOnes(names, unfinished)
	for _, name := range bySteps(names) {
		u.evaluate(name, names[name], scanContext{
			unfinished: unfinished[unfinishedName(name)], temporary: was, ended: ended, later: later[names[name]], before: before,
		})
	}
	u.rescue(names, later, gone)
	u.mu.Lock()
	u.listings.last = began
	for name, reason := range claimed {
		if u.explicit[name] {
			continue
		}
		u.seen[name] = &entry{step: -1, reason: reason, refused: true}
	}
	u.supersedeLocked()
	said := maps.Clone(u.explicit)
	u.mu.Unlock()
	half := make(map[string]bool)
	if u.cfg.Mode == ModeCheckpoint {
		half = halfWrittenOnes(entries)
	}
	u.vanished(names, half)
	u.mu.Lock()
	u.halfWritten = half
	u.listings.ended = u.listings.begun
	u.mu.Unlock()
	u.settle()
	tree, err := plainWalk(u.root, false, func(p string) bool {
		_, checkpoint := names[p]
		of, grouped := groupOf(p)
		_, part := names[of]
		return checkpoint || half[p] || said[p] || grouped && (part || said[of])
	})
	if err != nil {
		return fmt.Errorf("the output directory: %w", err)
	}
	u.plain.note(tree)
	return nil
}

// forgetShipped forgets what was uploaded under names that no longer exist.
func (u *Uploader) forgetShipped() {
	u.mu.Lock()
	shipped := maps.Clone(u.shipped)
	u.mu.Unlock()
	for name, was := range shipped {
		if present(u.root, name) {
			continue
		}
		u.mu.Lock()
		if u.shipped[name] == was {
			delete(u.shipped, name)
		}
		u.mu.Unlock()
	}
}

// candidates returns the entries whose names are those of checkpoints, and their steps. A
// directory takes precedence over files of the same step. If several names claim one step, none
// of them is a candidate, and claimed gives the reason.
func candidates(entries []fs.DirEntry) (names map[string]int64, claimed map[string]string) {
	names, claimed = make(map[string]int64), make(map[string]string)
	directories, files := make(map[int64][]string), make(map[int64][]string)
	for _, e := range entries {
		name := e.Name()
		_, temporary := finalName(name)
		step, ok := stepOf(name, e.IsDir())
		if of, grouped := groupOf(name); grouped && e.Type().IsRegular() {
			if step, ok = stepOf(of, true); ok && !slices.Contains(files[step], of) {
				files[step] = append(files[step], of)
			}
			continue
		}
		switch {
		case !ok || temporary || strings.HasPrefix(name, ".") || checkPath(name) != nil:
		case e.IsDir():
			directories[step] = append(directories[step], name)
		case e.Type().IsRegular():
			files[step] = append(files[step], name)
		}
	}
	for _, group := range []map[int64][]string{directories, files} {
		for step, rivals := range group {
			switch {
			case len(rivals) > 1:
				for _, name := range rivals {
					claimed[name] = fmt.Sprintf("%s claim step %d together, so none is saved as a checkpoint, but all are mirrored: "+
						"put them into one directory, or select one with stager commit", strings.Join(rivals, " and "), step)
				}
			case len(directories[step]) > 0 && directories[step][0] != rivals[0]:
				claimed[rivals[0]] = fmt.Sprintf("%s is step %d, so this file is mirrored only: put it into that directory", directories[step][0], step)
			default:
				names[rivals[0]] = step
			}
		}
	}
	return names, claimed
}

// unfinishedOnes returns the entries with temporary names, keyed by their future names, and their
// inodes.
func unfinishedOnes(entries []fs.DirEntry) (unfinished map[string]string, inodes map[uint64]bool) {
	unfinished, inodes = make(map[string]string), make(map[uint64]bool)
	for _, e := range entries {
		final, temporary := finalName(e.Name())
		if !temporary {
			continue
		}
		unfinished[final] = e.Name()
		if info, err := e.Info(); err == nil {
			inodes[inode(info)] = true
		}
	}
	return unfinished, inodes
}

// halfWritten is the reason why a checkpoint with a temporary name is not saved.
const halfWritten = "its name is temporary, and the program that writes it has not renamed it"

// halfWrittenOnes returns the entries with temporary names that will be checkpoints once they are
// renamed.
func halfWrittenOnes(entries []fs.DirEntry) map[string]bool {
	half := make(map[string]bool)
	for _, e := range entries {
		if final, temporary := finalName(e.Name()); temporary {
			if _, ok := stepOf(final, e.IsDir()); ok {
				half[e.Name()] = true
			}
		}
	}
	return half
}

func newerThan(files []local, at time.Time) string {
	for _, f := range files {
		if f.MTime > at.UnixNano() {
			return f.Path
		}
	}
	return ""
}

// within reports whether others contains all files in the same state.
func within(files, others []local) bool {
	known := make(map[local]bool, len(others))
	for _, f := range others {
		known[f] = true
	}
	return !slices.ContainsFunc(files, func(f local) bool { return !known[f] })
}

// mark is the content of a marker.
type mark struct {
	Step        int64              `json:"step"`
	SamplesSeen int64              `json:"samplesSeen"`
	Metrics     map[string]float64 `json:"metrics"` // used by retention to find the best steps
	Cursors     Cursors            `json:"cursors"` // the trainer's position in its data, as reported by the window
}

// at returns the input positions. Positions in the marker override known ones.
func (m mark) at(known Cursors) Cursors {
	if len(m.Cursors) == 0 {
		return known
	}
	all := maps.Clone(known)
	if all == nil {
		all = make(Cursors)
	}
	maps.Copy(all, m.Cursors)
	return all
}

// readMark reads the marker of a checkpoint. step is the number in its name. A marker that is not
// a JSON object carries no data.
func readMark(root *os.Root, step int64) (mark, error) {
	m := mark{Step: step}
	info, err := root.Stat(markerName)
	if err != nil || info.Size() > 1<<16 {
		return m, err
	}
	text, err := readPlain(root, markerName, 1<<16)
	if err != nil || !strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf(`its %s is not {"step": …, "samplesSeen": …}: %w`, markerName, err)
	}
	if m.Step < 0 {
		return m, fmt.Errorf("its %s says step %d", markerName, m.Step)
	}
	return m, nil
}

// acquireLocked creates the snapshot of a checkpoint and replaces an older snapshot of it.
//
// It releases mu while it writes to the disk. The caller holds directory, so no other snapshot is
// taken meanwhile.
func (u *Uploader) acquireLocked(snap *snapshot) error {
	u.mu.Unlock()
	snap.early = u.earlyLinks(snap.Name)
	began := time.Now()
	err := u.snapshots.take(snap)
	u.holding.Add(int64(time.Since(began)))
	if err == nil {
		u.noting.Lock()
		defer u.noting.Unlock()
		u.noteIDs(snap.ID)
	}
	u.mu.Lock()
	if err != nil {
		return err
	}
	if held := u.snaps[snap.Step]; held != nil && u.sending.sends(held) {
		u.dropped = append(u.dropped, snap)
		return fmt.Errorf("step %d is being saved with other content: try again when it is saved", snap.Step)
	} else if held != nil {
		u.log.Info("a checkpoint was written again before it was uploaded, and its last state is saved", "step", snap.Step, "checkpoint", snap.Name)
		u.dropped = append(u.dropped, held)
	}
	u.log.Info("a checkpoint is complete", "step", snap.Step, "checkpoint", snap.Name,
		"files", len(snap.Files), "bytes", totalSize(snap.Files), "evidence", snap.Evidence, "provisional", snap.Provisional)
	u.holdLocked(snap)
	return nil
}

// supersedeLocked drops snapshots that retention would remove at once, because at least Keep
// newer ones are complete. This bounds the snapshots to Keep plus one. If only the newest is
// sent, only the newest is kept.
//
// Newer means complete later, whatever the number: after a rollback, a trainer saves lower
// numbers than the run before.
func (u *Uploader) supersedeLocked() {
	if u.member != nil {
		return // the nodes decide together
	}
	for step, snap := range u.snaps {
		limit := u.cfg.Keep.Last
		if !u.cfg.When.Change && !snap.Committed {
			limit = 1
		}
		if limit == 0 || snap.refused != nil || u.sending.sends(snap) {
			continue
		}
		newer := 0
		for _, other := range u.snaps {
			if newerFirst(other, snap) < 0 {
				newer++
			}
		}
		for _, s := range u.shipped {
			if s.Dir != "" && s.Complete.After(snap.Complete) {
				newer++
			}
		}
		if newer >= limit {
			u.log.Info("newer checkpoints are complete, so this one is not uploaded", "step", step, "checkpoint", snap.Name)
			u.missLocked(missedSuperseded, snap.Name, "newer checkpoints were complete before it could be uploaded")
			u.rememberLocked(snap.Name, shipment{Step: step, Fingerprint: snap.print, Complete: snap.Complete})
			u.leaveLocked(snap)
		}
	}
}
