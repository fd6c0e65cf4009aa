package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

// syncAll returns when the files below root are durable.
func syncAll(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() // opened for reading
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: root.Name(), Err: err}
	}
	return nil
}

// Names of a restore that is under way.
const (
	workshopDir = private + "-restore"       // files come here, and are checked
	readyDir    = private + "-restore-ready" // all of them are good: they only have to move
	formerName  = private + "-former"        // in readyDir: the RESTORED.json that was there
)

// site is the place that a checkpoint is restored to.
type site struct {
	dir    string
	exists bool     // dir did exist, so the files move into it one by one
	root   *os.Root // dir, or its parent when it did not exist
	work   string   // the workshop, below root
	ready  string
}

// openSite opens the place, and finishes or sweeps what a killed restore left.
func openSite(dir string) (*site, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, exists: true, work: workshopDir, ready: readyDir}
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return nil, &fs.PathError{Op: "restore", Path: dir, Err: errors.New("it is a file; a checkpoint is restored to a folder")}
	case err == nil:
		s.root, err = os.OpenRoot(dir)
	case errors.Is(err, fs.ErrNotExist):
		s.exists = false
		s.work += "-" + filepath.Base(dir)
		if err = os.MkdirAll(filepath.Dir(dir), 0o755); err == nil {
			s.root, err = os.OpenRoot(filepath.Dir(dir))
		}
	}
	if err == nil {
		err = s.recover()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close sweeps what a restore brought that failed: it may fill the disk, and the
// next one begins anew.
func (s *site) close() {
	if s.root != nil {
		_ = s.root.RemoveAll(s.work) // the next restore sweeps too
		_ = s.root.Close()           // files are changed through it, and each change was checked
	}
}

func (s *site) recover() error {
	if s.exists {
		if err := s.move(); err != nil {
			return err
		}
	}
	return s.root.RemoveAll(s.work)
}

// workshop is an empty folder for the files of one try, with room for so many bytes.
func (s *site) workshop(need int64) (*os.Root, error) {
	if err := s.root.RemoveAll(s.work); err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.root.Name(), &st); err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: s.root.Name(), Err: err}
	}
	if free := int64(st.Bavail) * st.Bsize; need > free {
		return nil, &backends.Error{Op: "restore", Store: s.dir, Kind: backends.NoSpace, Err: fmt.Errorf(
			"the checkpoint has %s (%d bytes), but only %s (%d bytes) are free there",
			humanize.IBytes(uint64(need)), need, humanize.IBytes(uint64(free)), free)}
	}
	if err := s.root.Mkdir(s.work, 0o755); err != nil {
		// Of a Root's errors the path is relative, and says nothing to a person.
		var e *fs.PathError
		errors.As(err, &e)
		return nil, &fs.PathError{Op: "restore", Path: s.dir, Err: e.Err}
	}
	return s.root.OpenRoot(s.work)
}

// publish brings the workshop's files to their place.
func (s *site) publish(done Restored) error {
	text, err := json.MarshalIndent(done, "", " ")
	if err != nil {
		return err
	}
	if err := s.root.WriteFile(path.Join(s.work, restored), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if !s.exists {
		return s.root.Rename(s.work, filepath.Base(s.dir))
	}
	if err := s.makeRoom(done.Files); err != nil {
		return err
	}
	if err := s.root.Rename(s.work, s.ready); err != nil {
		return err
	}
	return s.move()
}

// makeRoom finds out before anything moves what would stand in the way.
func (s *site) makeRoom(files []string) error {
	for _, p := range files {
		if err := s.root.MkdirAll(path.Dir(p), 0o755); err != nil {
			return err
		}
		if info, err := s.root.Lstat(p); err == nil && info.IsDir() {
			return &fs.PathError{Op: "restore", Path: filepath.Join(s.dir, p), Err: errors.New("a folder is where a file of the checkpoint goes: remove it")}
		}
	}
	return nil
}

// move moves what is ready into the folder, RESTORED.json last, after the files of
// an earlier restore have gone that are not among them. It goes on where a kill
// ended it.
func (s *site) move() error {
	now, err := s.report(path.Join(s.ready, restored))
	if errors.Is(err, fs.ErrNotExist) {
		return s.root.RemoveAll(s.ready) // all has been moved, or there was nothing
	}
	if err != nil {
		return err
	}
	stay := make(map[string]bool, len(now.Files))
	for _, p := range now.Files {
		stay[p] = true
	}
	former := path.Join(s.ready, formerName)
	if err := s.root.Rename(restored, former); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, err := s.report(former)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		before.Files = nil // not written by a restore: nothing is known, so nothing goes
	}
	for _, p := range before.Files {
		if stay[p] || checkPath(p) != nil {
			continue
		}
		if err := s.root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, p := range now.Files {
		err := s.root.Rename(path.Join(s.ready, p), p)
		if errors.Is(err, fs.ErrNotExist) {
			_, err = s.root.Lstat(p) // it was moved before a kill
		}
		if err != nil {
			return err
		}
	}
	if err := s.root.Rename(path.Join(s.ready, restored), restored); err != nil {
		return err
	}
	return s.root.RemoveAll(s.ready)
}

// report reads a RESTORED.json.
func (s *site) report(name string) (r Restored, err error) {
	text, err := s.root.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}
