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

// ErrLost says that another program removed or changed a shard's file. The lease has
// ended, and the shard is fetched again.
var ErrLost = errors.New("another program removed or changed the shard's file")

// Shard is a leased shard, opened for reading: a file or a tree.
type Shard struct {
	File *os.File
	Tree *os.Root
}

// Close closes it.
func (s Shard) Close() error {
	if s.Tree != nil {
		return s.Tree.Close()
	}
	return s.File.Close()
}

// Open opens the shard of a lease. It returns ErrNoLease when there is no such lease, and
// ErrLost when the file is not the one that the window put there.
//
// It opens the second link, which only stager can reach, and compares its inode, size and time:
// the name in ready/ is one that every reader may give to a link to something else.
func (w *Window) Open(id string) (Shard, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.heldLocked(id)
	if err != nil {
		return Shard{}, err
	}
	e := l.e
	opened, err := w.stage.openHeld(e, w.cfg.Items[e.item].Tree)
	if errors.Is(err, fs.ErrNotExist) {
		w.log.Warn("another program removed or changed a shard's file, fetching it again", "file", e.name, "error", err)
		w.lostLocked(time.Now(), e)
		err = fmt.Errorf("%w (%w)", ErrLost, err)
	}
	return opened, err
}

// openHeld opens the second link of a shown file or tree if it is that of the inode and
// size. Otherwise it returns an error that is fs.ErrNotExist.
func (s *localDir) openHeld(e *entry, tree bool) (Shard, error) {
	name, ino, size := e.name, e.ino, e.size
	if !tree {
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
