package window

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// localDir is the directory and its subdirectories. It handles files, not positions. Its methods
// need no lock.
type localDir struct {
	*disk.Dir
	ready, claimed, done    *disk.Subdir
	whole, held, pendingDir *disk.Subdir
	leaving                 *disk.Subdir // trees that are being removed, out of the readers' sight
	seesOpen                bool         // the file system reports open files
}

func openStage(dir string, cfg *Config) (*localDir, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	directory, err := disk.Open(dir, fmt.Sprintf("input %s, process %d on %s", cfg.Input, os.Getpid(), host))
	if err != nil {
		return nil, err
	}
	s := &localDir{Dir: directory}
	if err := directory.SetWrite(cfg.Write, false, func(err error) {
		cfg.Log.Debug("file system does not support direct writes, using the page cache", "input", cfg.Input, "error", err)
	}); err != nil {
		return nil, errors.Join(err, directory.Close())
	}
	for _, subdir := range []struct {
		at   **disk.Subdir
		name string
		mode fs.FileMode
	}{
		{&s.ready, "ready", 0o777},
		{&s.claimed, "claimed", 0o777 | fs.ModeSticky},
		{&s.done, "done", 0o777 | fs.ModeSticky},
		{&s.whole, disk.Private + "/whole", 0o755},
		{&s.held, disk.Private + "/held", 0o755},
		{&s.pendingDir, disk.Private + "/pending", 0o755},
		{&s.leaving, disk.Private + "/leaving", 0o755},
	} {
		if *subdir.at, err = directory.Subdir(subdir.name, subdir.mode); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	directory.Keep(s.ready, s.claimed, s.done, s.whole, s.held, s.pendingDir, s.leaving)
	// Readers work in ready/, claimed/ and done/. The second links of published files are private:
	// stager reads files through them.
	if err := directory.MakePrivate(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.seesOpen = directory.SeesOpenFiles()
	return s, nil
}

func (s *localDir) close() error {
	var errs []error
	for _, subdir := range []*disk.Subdir{s.ready, s.claimed, s.done, s.whole, s.held, s.pendingDir, s.leaving} {
		if subdir != nil {
			errs = append(errs, subdir.Close())
		}
	}
	return errors.Join(append(errs, s.Dir.Close())...)
}

// land renames a verified file to whole/, where readers do not see it yet.
func (s *localDir) land(in *disk.Incoming, name string) (disk.Mark, error) {
	state, err := in.PublishNew(disk.Private+"/whole/"+name, 0o444, time.Time{}, func(disk.State) bool { return true })
	return s.Mark(state.Inode, state.ModTime.UnixNano()), err
}

func (s *localDir) landTree(in *disk.IncomingTree, name string) (disk.Mark, error) {
	return disk.Mark{}, in.Publish(disk.Private + "/whole/" + name)
}

// mark returns the mark of a file in whole/ or ready/. Trees have none; theirs is the zero Mark.
func (s *localDir) mark(st disk.Stat) disk.Mark {
	if st.Dir {
		return disk.Mark{}
	}
	return s.Mark(st.Ino, st.Time)
}

// show publishes a file. It first creates the link in held/, which distinguishes a file that a
// reader unlinked from one that was never published. Then it renames the file. It returns ErrLost
// if the file is missing, or is not the one that was verified.
func (s *localDir) show(name string, verified disk.Mark) (ino uint64, err error) {
	st, err := s.whole.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.mark(st) != verified {
		return 0, errors.Join(ErrLost, err)
	}
	if err != nil {
		return 0, err
	}
	if st.Dir {
		err = s.linkTree(name, st.Ino)
	} else {
		err = s.whole.Link(name, s.held, name)
	}
	if errors.Is(err, fs.ErrExist) {
		old, serr := s.held.Stat(name)
		switch {
		case serr != nil:
		case old.Ino == st.Ino: // left by a kill during an earlier attempt
			err = nil
		default: // another program's file: move it to done/, where users find it
			err = errors.Join(s.held.Move(name, s.done, pendingName(name, old.Ino)), s.whole.Link(name, s.held, name))
		}
	}
	if err != nil {
		return 0, err
	}
	if err := s.whole.Move(name, s.ready, name); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: stager did not create this file and does not replace it; move it away", err)
		}
		return 0, errors.Join(err, s.erase(s.held, name))
	}
	return st.Ino, nil
}

// place is where a reader moved a file.
type place struct {
	reader string // <reader> in claimed/<reader>/; empty: done/
	name   string
}

// acquire removes the name that a reader gave to the file, if the file still has it.
func (s *localDir) acquire(p place, ino uint64) error {
	if p.name == "" {
		return nil
	}
	if p.reader == "" {
		return s.hide(s.done, p.name, ino)
	}
	sub, err := s.claimed.Sub(p.reader)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(s.hide(sub, p.name, ino), sub.Close())
}

// removeIdle removes the last name of a file, unless the file is open. In a tree it removes the
// files that are not open. gone reports whether all are removed.
func (s *localDir) removeIdle(subdir *disk.Subdir, name string) (gone bool, err error) {
	st, err := subdir.Stat(name)
	switch {
	case err == nil && st.Dir:
		gone, err = subdir.Prune(name, func(dir *disk.Subdir, name string, st disk.Stat) (bool, error) {
			return s.removeIdleFile(dir, name, st)
		})
	case err == nil:
		gone, err = s.removeIdleFile(subdir, name, st)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return gone && err == nil, err
}

func (s *localDir) removeIdleFile(subdir *disk.Subdir, name string, st disk.Stat) (gone bool, err error) {
	if st.Links > 1 {
		return false, nil
	}
	if s.seesOpen {
		return subdir.RemoveIdle(name)
	}
	return true, subdir.Remove(name)
}

// pendingName returns a file's name in pending/: unique, and it contains the original name.
func pendingName(name string, ino uint64) string { return fmt.Sprintf("%d-%s", ino, name) }

// doom moves the file's link in held/, if there is one, to pending/. From then on, a missing name in
// ready/ no longer counts as an acknowledgement.
func (s *localDir) doom(name string, ino uint64) error {
	is, err := s.origin(s.held, name)
	if err == nil && is == ino {
		err = s.held.Move(name, s.pendingDir, pendingName(name, ino))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unshow removes an unacknowledged file from ready/. taken reports that a reader was faster; the
// file is then unchanged.
func (s *localDir) unshow(name string, ino uint64) (taken bool, err error) {
	// Without a name in ready/, a link in held/ would count as an acknowledgement.
	if err := s.doom(name, ino); err != nil {
		return false, err
	}
	st, err := s.ready.Stat(name)
	switch {
	case err == nil && st.Ino != ino:
		err = fs.ErrNotExist
	case err == nil && st.Dir:
		err = s.hideTree(s.ready, name, ino)
	case err == nil:
		err = s.ready.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, s.pendingDir.Move(pendingName(name, ino), s.held, name)
	}
	return false, err
}

// remove removes all names of a published file. gone is false while the file is open or has other
// names; it then lies in pending/.
func (s *localDir) remove(name string, ino uint64, at place, acked bool) (gone bool, err error) {
	if !acked {
		// Before doom, a link in held/ without a visible name would count as an acknowledgement.
		if err := s.doom(name, ino); err != nil {
			return false, err
		}
	}
	if err := errors.Join(s.hide(s.ready, name, ino), s.acquire(at, ino)); err != nil {
		return false, err
	}
	is, err := s.origin(s.held, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if acked && err == nil && is == ino {
		if gone, err = s.removeIdle(s.held, name); gone || err != nil {
			return gone, err
		}
		return false, s.doom(name, ino)
	}
	return s.removeIdle(s.pendingDir, pendingName(name, ino))
}

// reuse moves an acknowledged file to whole/, under the name of the position that reuses it. ok is
// false if that is not possible; the caller then removes the file.
func (s *localDir) reuse(name string, ino uint64, at place, to *entry) (ok bool, err error) {
	if err := errors.Join(s.hide(s.ready, name, ino), s.acquire(at, ino)); err != nil {
		return false, err
	}
	st, err := s.linked(s.held, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || st.Ino != ino || st.Size != to.size || s.mark(st) != to.mark || st.Links > 1 { // a foreign name
		return false, err
	}
	if st.Dir {
		err = s.reuseTree(name, ino, to.name)
	} else {
		err = s.held.Move(name, s.whole, to.name)
	}
	return err == nil, err
}

// isOpen reports whether a file is open, published or not.
func (s *localDir) isOpen(name string, visible bool) bool {
	subdir := s.whole
	if visible {
		subdir = s.held
	}
	if !s.seesOpen {
		return false
	}
	idle, err := s.idle(subdir, name)
	return err == nil && !idle
}

// discard removes a file from whole/. A file that was kept from an earlier epoch may still be open:
// it is moved to pending/, and its inode is returned.
func (s *localDir) discard(name string) (ino uint64, err error) {
	st, err := s.whole.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil && st.Dir {
		return s.discardTree(name, st.Ino)
	}
	if err == nil && st.Links > 1 { // its link in held/ or pending/ covers it
		return 0, s.whole.Remove(name)
	}
	if err != nil {
		return 0, err
	}
	if gone, err := s.removeIdle(s.whole, name); gone || err != nil {
		return 0, err
	}
	return st.Ino, s.whole.Move(name, s.pendingDir, pendingName(name, st.Ino))
}

// markEnd writes the END marker of an epoch.
func (s *localDir) markEnd(epoch int) error {
	name := endName(epoch)
	if err := s.held.Create(name, 0o444); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.held.Link(name, s.ready, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// unmarkEnd removes the END marker, if stager made it.
func (s *localDir) unmarkEnd(epoch int) error {
	st, err := s.held.Stat(endName(epoch))
	if err == nil {
		err = errors.Join(s.ready.RemoveSame(endName(epoch), st.Ino), s.held.Remove(endName(epoch)))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// clear removes foreign objects from stager's own directories: links, FIFOs, sockets, devices, and
// END markers that are not empty. Neither stager nor readers create these. It returns their names.
func (s *localDir) clear() (removed []string, err error) {
	for _, dir := range []*disk.Subdir{s.whole, s.held, s.pendingDir, s.leaving} {
		names, err := dir.Names()
		if err != nil {
			return removed, err
		}
		for _, name := range names {
			st, err := dir.Stat(name)
			_, end := parseEnd(name)
			switch {
			case errors.Is(err, fs.ErrNotExist), err == nil && !st.Odd && !(end && dir == s.held && !st.Dir && st.Size > 0):
				continue
			case err != nil:
				return removed, err
			}
			if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return removed, err
			}
			removed = append(removed, path.Join(dir.Name(), name))
		}
	}
	return removed, nil
}

// findings returns the files in claimed/ and done/, by inode.
func (s *localDir) findings() (map[uint64]place, error) {
	found := map[uint64]place{}
	// done/ after claimed/: a file that moves meanwhile is found at least once.
	readers, err := s.claimed.Names()
	if err != nil {
		return nil, err
	}
	for _, reader := range readers {
		sub, err := s.claimed.Sub(reader)
		if isForeign(err) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
			continue // gone, a file, or a link: not a claim
		}
		if err != nil {
			return nil, err
		}
		err = errors.Join(list(sub, reader, found), sub.Close())
		if err != nil {
			return nil, err
		}
	}
	return found, list(s.done, "", found)
}

func list(subdir *disk.Subdir, reader string, found map[uint64]place) error {
	names, err := subdir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := subdir.Stat(name)
		if err == nil {
			found[st.Ino] = place{reader, name}
		} else if !isForeign(err) {
			return err
		}
	}
	return nil
}

// isForeign reports whether an entry of a reader's directory is gone, or the reader's alone. The
// second link of a shard that is there still proves that some reader holds it.
func isForeign(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}
