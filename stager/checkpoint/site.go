package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// syncAll returns when the files below root are durable.
func syncAll(root *os.Root) error {
	dir, err := disk.OpenDir(root)
	if err != nil {
		return err
	}
	defer dir.Close() // opened for reading
	if err := sys.SyncTree(root, dir); err != nil {
		return &fs.PathError{Op: "syncfs", Path: root.Name(), Err: err}
	}
	return nil
}

// A restore works in a private directory of its destination, or beside the destination if that
// does not exist. The private directory contains LOCK, and for each restore in progress a
// directory with a random name:
//
//	.stager-restore/LOCK
//	.stager-restore/7c1f…/mark          proves that a restore made this directory
//	.stager-restore/7c1f…/files/…       staged files, until all are verified
//	.stager-restore/7c1f…/plan.json     all files are verified: the renames to do
//	.stager-restore/7c1f…/aside/0…      replaced files, until RESTORED.json is written
//
// A process never removes the directory of a live process. With LOCK held, a directory that has a
// mark belongs to a dead process.
const (
	workshopDir = private + "-restore"
	markFile    = "mark"
	stagedDir   = "files"
	planFile    = "plan.json"
	asideDir    = "aside"
)

// site is the directory to which a checkpoint is restored.
type site struct {
	dir       string
	exists    bool         // dir already existed, so files are moved into it one by one
	overwrite bool         // also replace files that no restore wrote, or that changed since
	root      *os.Root     // dir, or its parent when dir did not exist
	place     *place       // of root
	shop      string       // the private directory, below root
	work      string       // directory of this restore, below root
	locks     []*disk.Lock // empty on a file system without locks
	locked    bool
	log       *slog.Logger

	before     []placed // files in dir that earlier restores wrote
	record     identity // of the RESTORED.json in dir; zero: no restore wrote one
	unfinished []string // directories of killed restores that cannot be finished

	mu      sync.Mutex          // guards checked
	checked map[string]identity // files whose digest was compared

	hook   func(at string) error // for tests: called before each step; an error simulates a kill
	killed bool
}

// at calls the hook before a step of the restore.
func (s *site) at(step string) error {
	if s.hook == nil {
		return nil
	}
	err := s.hook(step)
	s.killed = s.killed || err != nil
	return err
}

// openSite opens and locks the site. It finishes or removes the work of killed restores. The
// error is a *disk.BusyError when another process writes there.
func openSite(cfg RestoreConfig) (*site, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for {
		s := &site{dir: dir, overwrite: cfg.Overwrite, log: cfg.Log, hook: cfg.hook, checked: make(map[string]identity)}
		err := s.open()
		if err == nil {
			err = s.recover()
		}
		if err == nil {
			return s, nil
		}
		s.close()
		if !errors.Is(err, errCame) {
			return nil, err
		}
	}
}

// errCame reports that the directory was created while its parent was being locked.
var errCame = errors.New("the directory was created in the meantime")

// open opens the directory, or its parent, and locks it.
func (s *site) open() error {
	info, err := os.Stat(s.dir)
	at := s.dir
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "restore", Path: s.dir, Err: errors.New("it is a file; restore to a directory")}
	case err == nil:
		s.exists, s.shop = true, workshopDir
	case errors.Is(err, fs.ErrNotExist):
		at, s.shop = filepath.Dir(s.dir), workshopDir+"-"+filepath.Base(s.dir)
		if len(s.shop) > maxName {
			sum := sha256.Sum256([]byte(filepath.Base(s.dir)))
			s.shop = workshopDir + "-" + hex.EncodeToString(sum[:16])
		}
		err = nil
	}
	if err == nil {
		s.root, err = disk.MakeRoot(at)
	}
	if err == nil {
		s.place, err = openPlace(s.root)
	}
	if err == nil {
		err = s.lock()
	}
	if err != nil || s.exists {
		return err
	}
	if _, err := os.Stat(s.dir); err == nil {
		return errCame
	}
	return nil
}

// lock locks the private directory, and the directory of a prefetch or window if there is one.
func (s *site) lock() error {
	host, _ := os.Hostname() // for display only
	holder := fmt.Sprintf("stager restore to %s, process %d on %s", s.dir, os.Getpid(), host)
	for {
		err := s.lockIn(s.shop, holder, true)
		switch {
		case errors.Is(err, disk.ErrNoLocks):
			s.log.Warn("the file system does not support locks, so do not run two restores to one directory at the same time", "dir", s.dir, "error", err)
		case errors.Is(err, fs.ErrNotExist):
			continue // the previous holder removed it on exit
		case err != nil:
			return err
		}
		break
	}
	s.locked = true
	if !s.exists {
		return nil
	}
	err := s.lockIn(disk.Private, holder, false)
	if errors.As(err, new(*disk.BusyError)) {
		return err
	}
	return nil // nobody fills it, or there are no locks to check
}

func (s *site) lockIn(name, holder string, create bool) error {
	if create {
		if err := s.root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			// The path in errors of a Root is relative, which does not help users.
			var e *fs.PathError
			errors.As(err, &e)
			return &fs.PathError{Op: "restore", Path: s.dir, Err: e.Err}
		}
	}
	info, err := s.root.Lstat(name)
	if err != nil {
		return err
	}
	odd := &fs.PathError{Op: "restore", Path: filepath.Join(s.root.Name(), name), Err: errors.New("it is not a directory: remove it")}
	if !info.IsDir() {
		return odd
	}
	dir, err := s.root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close() // the lock has its own handle
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(info, opened) {
		return odd // it was replaced by a link
	}
	l, err := disk.Acquire(dir, s.dir, holder, create)
	if err == nil {
		s.locks = append(s.locks, l)
	}
	return err
}

// held returns an error when a lock was lost.
func (s *site) held() error {
	for _, l := range s.locks {
		if !l.Held() {
			return backends.Errorf(backends.Changed, "restore", s.dir, "its lock file was removed, so another restore may have begun")
		}
	}
	return nil
}

// close removes staged files that were not published, which may fill the disk, and releases the
// locks.
func (s *site) close() {
	if s.locked && !s.killed {
		s.tidy()
	}
	if s.place != nil {
		s.place.close()
	}
	for _, l := range s.locks {
		_ = l.Close() // exiting would release it too
	}
	if s.root != nil {
		_ = s.root.Close() // changes made through it were checked individually
	}
}

// tidy removes what the next restore would remove. A directory with a plan stays, to be finished.
func (s *site) tidy() {
	if s.work != "" {
		if _, err := s.place.stat(path.Join(s.work, planFile)); errors.Is(err, fs.ErrNotExist) {
			_ = s.root.RemoveAll(s.work) // best effort: the next restore removes it
		}
	}
	entries, err := disk.ReadDir(s.root, s.shop)
	if err == nil && (len(entries) == 0 || len(entries) == 1 && entries[0].Name() == disk.LockName) {
		_ = s.locks[0].Remove()   // best effort: the next restore removes it
		_ = s.root.Remove(s.shop) // best effort: the next restore removes it
	}
}

// recover finishes killed restores whose files were all verified, and removes the others.
func (s *site) recover() error {
	if s.exists {
		s.recall()
	}
	entries, err := disk.ReadDir(s.root, s.shop)
	if err != nil {
		return err
	}
	for _, e := range entries {
		work := path.Join(s.shop, e.Name())
		mark, _, err := s.read(path.Join(work, markFile))
		if !uploadID.MatchString(e.Name()) || !e.IsDir() || err != nil || string(mark) != markOf(e.Name()) {
			if e.Name() != disk.LockName && s.root.Remove(work) != nil { // an empty directory had no mark yet
				s.log.Warn("the directory for restores contains something that no restore created, leaving it", "path", filepath.Join(s.root.Name(), work))
			}
			continue
		}
		if err := s.finish(work); err != nil {
			return err
		}
	}
	if _, now, err := s.report(restored); s.exists && err == nil && now.same(s.record) {
		s.record = now // removing a directory may have removed a second link to it, which changes its change time
	}
	return nil
}

func markOf(id string) string { return "stager restore " + id + "\n" }

// workshop returns an empty directory for the files of one attempt. It fails with NoSpace when
// fewer than need bytes are free.
func (s *site) workshop(need int64) (*os.Root, error) {
	if err := s.at("stage"); err != nil {
		return nil, err
	}
	if s.work != "" {
		if err := s.root.RemoveAll(path.Join(s.work, stagedDir)); err != nil {
			return nil, err
		}
	}
	on, err := sys.FileSystemAt(s.root.Name())
	if err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: s.root.Name(), Err: err}
	}
	if free := on.Free; need > free {
		return nil, &backends.Error{Op: "restore", Store: s.dir, Kind: backends.NoSpace, Err: fmt.Errorf(
			"the checkpoint has %s (%d bytes), but only %s (%d bytes) are free there",
			humanize.IBytes(uint64(need)), need, humanize.IBytes(uint64(free)), free)}
	}
	if s.work == "" {
		id := newID()
		work := path.Join(s.shop, id)
		if err := s.root.Mkdir(work, 0o700); err != nil {
			return nil, err
		}
		if err := s.at("mark"); err != nil {
			return nil, err
		}
		s.work = work
		if err := s.root.WriteFile(path.Join(work, markFile), []byte(markOf(id)), 0o600); err != nil {
			return nil, err
		}
	}
	if err := s.at("directory"); err != nil {
		return nil, err
	}
	staged := path.Join(s.work, stagedDir)
	if err := s.root.Mkdir(staged, 0o755); err != nil {
		return nil, err
	}
	return s.root.OpenRoot(staged)
}
