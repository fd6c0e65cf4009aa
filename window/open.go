package window

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"
)

// ErrLost is returned if another program removed or changed a shard's file. The lease has ended,
// and the shard is fetched again.
var ErrLost = errors.New("another program removed or changed the shard's file")

// Shard is a leased shard that is open for reading: a file or a tree.
type Shard struct {
	File *os.File
	Tree *os.Root
}

// Close closes the file or tree.
func (s Shard) Close() error {
	if s.Tree != nil {
		return s.Tree.Close()
	}
	return s.File.Close()
}

// Open opens the shard of a lease. It returns ErrNoLease if there is no such lease, and ErrLost if
// the file is not the one that the window put there.
//
// It opens the second link, which only stager can reach, and compares inode, size and time. It does
// not use the name in ready/: any reader may replace that with a link to something else.
func (w *Window) Open(id string) (Shard, error) { return w.openBy(id, w.stage.openHeld) }

// openBy opens a shard without the lock, because that may take long.
func (w *Window) openBy(id string, open func(*entry) (Shard, error)) (Shard, error) {
	w.mu.Lock()
	l, err := w.heldLocked(id)
	var e entry
	if err == nil {
		e = *l.e
	}
	w.mu.Unlock()
	if err != nil {
		return Shard{}, err
	}
	opened, err := open(&e)
	if err == nil {
		return opened, nil
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if still, herr := w.heldLocked(id); herr != nil {
		return Shard{}, herr
	} else if still == l && errors.Is(err, fs.ErrNotExist) {
		w.log.Warn("another program removed or changed a shard's file, fetching it again", "file", e.name, "error", err)
		w.lostLocked(time.Now(), l.e)
		err = fmt.Errorf("%w (%w)", ErrLost, err)
	}
	return Shard{}, err
}

// openHeld opens the second link of a published file or tree if inode and size match. Otherwise it
// returns an error that is fs.ErrNotExist.
func (s *localDir) openHeld(e *entry) (Shard, error) {
	name, ino, size := e.name, e.ino, e.size
	if !e.tree {
		file, err := s.held.Open(name, ino, size, e.mark.Time)
		return Shard{File: file}, err
	}
	st, err := s.linked(s.held, name)
	if err == nil && (!st.Dir || st.Ino != ino || st.Size != size) {
		err = fmt.Errorf("changed by another program: inode %d and %d bytes, want %d and %d: %w", st.Ino, st.Size, ino, size, fs.ErrNotExist)
	}
	if err != nil {
		return Shard{}, err
	}
	root, err := s.Root().OpenRoot(path.Join(s.held.Name(), name, strconv.FormatUint(ino, 10)))
	return Shard{Tree: root}, err
}
