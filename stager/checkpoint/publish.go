package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// plan lists the renames of publish when the directory already exists. As long as the plan is on
// disk, every staged file is verified, and the next restore finishes a publish that was killed.
type plan struct {
	Done   Restored `json:"done"`
	Files  []placed `json:"files"`  // as staged
	Aside  []placed `json:"aside"`  // files to move away, in the state that list accepted
	Before []placed `json:"before"` // written by earlier restores
}

// errMoved is wrapped in errors of kind Changed.
var errMoved = errors.New("it changed while the checkpoint was published there: run restore again")

func moved(p string) error {
	return &backends.Error{Op: "restore", Key: p, Kind: backends.Changed, Err: errMoved}
}

// publish moves the staged files to their final names.
func (s *site) publish(ctx context.Context, done Restored, files []File) error {
	p := plan{Done: done, Before: s.before}
	for _, f := range files {
		st, err := s.place.stat(path.Join(s.work, stagedDir, f.Path))
		if err != nil {
			return err
		}
		p.Files = append(p.Files, placed{f.Path, f.Digest, identityOf(&st)})
	}
	if !s.exists {
		return s.publishWhole(p)
	}
	var err error
	if p.Aside, err = s.list(ctx, files, false); err != nil {
		return err
	}
	if err := s.held(); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := s.root.Mkdir(path.Join(s.work, asideDir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.writeNew(path.Join(s.work, planFile), text); err != nil {
		return err
	}
	// Sync the plan before files move. After a power failure, only the plan identifies whose
	// files they are.
	staged := dirsOf(path.Join(s.work, stagedDir), placedPaths(p.Files))
	if err := syncNames(s.root, append(staged, s.work, s.shop, ".")...); err != nil {
		return err
	}
	if err := s.move(s.work, p, false); err != nil {
		return err
	}
	for _, work := range s.unfinished {
		if err := s.root.RemoveAll(work); err != nil {
			return err
		}
	}
	return nil
}

// publishWhole renames the directory of staged files to the site's directory.
func (s *site) publishWhole(p plan) error {
	staged := path.Join(s.work, stagedDir)
	if err := s.writeRecord(s.work, p); err != nil {
		return err
	}
	if err := s.root.Rename(path.Join(s.work, restored), path.Join(staged, restored)); err != nil {
		return err
	}
	st, err := s.place.stat(staged)
	if err != nil {
		return err
	}
	if err := s.held(); err != nil {
		return err
	}
	if err := s.at("publish"); err != nil {
		return err
	}
	// This rename can replace only an empty directory.
	if err := s.root.Rename(staged, filepath.Base(s.dir)); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
			return backends.Errorf(backends.Changed, "restore", s.dir, "another program wrote to it while the checkpoint was fetched: run restore again")
		}
		return err
	}
	now, err := s.place.stat(filepath.Base(s.dir))
	if err == nil && now.Ino != st.Ino {
		err = moved(s.dir)
	}
	return err
}

// writeNew writes a file atomically.
func (s *site) writeNew(name string, text []byte) error {
	if err := s.at("write " + path.Base(name)); err != nil {
		return err
	}
	file, err := disk.Replacement(s.root, name, 0o644)
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = s.at("name " + path.Base(name))
	}
	if err == nil {
		err = file.Commit()
	}
	return errors.Join(err, file.Close())
}

// writeRecord writes the RESTORED.json of a plan to work.
func (s *site) writeRecord(work string, p plan) error {
	text, err := json.MarshalIndent(record{p.Done, path.Base(work), p.Files}, "", " ")
	if err != nil {
		return err
	}
	return s.writeNew(path.Join(work, restored), append(text, '\n'))
}

// step is one rename of a move. It can be undone.
type step struct {
	from, to string
	is       identity
}

// move executes a plan, or resumes the plan of a killed process. It moves the old RESTORED.json
// away first. It checks every file and writes the new RESTORED.json last. When the state differs
// from the plan, it undoes its renames. Once RESTORED.json has its name, the restore is done and
// nothing is undone; the next restore removes what is left in work.
func (s *site) move(work string, p plan, resumed bool) (err error) {
	var done []step
	concluded := false
	defer func() {
		if err != nil && !s.killed && !concluded {
			err = errors.Join(err, s.undo(work, done, resumed))
		}
	}()
	staged := make(map[string]identity, len(p.Files))
	for _, f := range p.Files {
		staged[f.Path] = f.identity
	}
	for i, a := range p.Aside {
		st, err := s.place.stat(a.Path)
		var obstacle *obstacleError
		if errors.Is(err, fs.ErrNotExist) || errors.As(err, &obstacle) {
			continue // the renames of the new files detect this
		} else if err != nil {
			return err
		}
		if is, comes := staged[a.Path]; comes && is.same(identityOf(&st)) {
			continue // placed before a kill
		}
		if !a.same(identityOf(&st)) {
			return moved(a.Path)
		}
		to := path.Join(work, asideDir, strconv.Itoa(i))
		if err := s.rename(step{a.Path, to, a.identity}, &done); err != nil {
			return err
		}
	}
	for _, f := range p.Files {
		from := path.Join(work, stagedDir, f.Path)
		if st, err := s.place.stat(f.Path); err == nil && f.same(identityOf(&st)) {
			continue // placed before a kill
		}
		if err := s.rename(step{from, f.Path, f.identity}, &done); err != nil {
			return err
		}
	}
	concluded, err = s.conclude(work, p)
	return err
}

// rename executes one step. It returns an error when it moved another file than expected.
func (s *site) rename(st step, done *[]step) error {
	if err := s.at("move " + st.from); err != nil {
		return err
	}
	if err := s.place.move(st.from, s.place, st.to); errors.Is(err, fs.ErrExist) {
		return moved(st.to)
	} else if err != nil {
		return err
	}
	*done = append(*done, st)
	now, err := s.place.stat(st.to)
	if err == nil && !st.is.same(identityOf(&now)) {
		err = moved(st.from)
	}
	return err
}

// undo reverts the steps, last one first, and then removes the plan.
func (s *site) undo(work string, done []step, resumed bool) error {
	for _, st := range slices.Backward(done) {
		if err := s.at("undo " + st.from); err != nil {
			return err
		}
		if err := s.place.move(st.to, s.place, st.from); err != nil {
			return err // keep the plan: it still records the owners of the files
		}
	}
	if resumed {
		return nil // only the plan records what was placed before the kill
	}
	return s.root.Remove(path.Join(work, planFile))
}

// conclude checks every file again and writes RESTORED.json. done reports whether that file has
// its final name, with or without an error.
func (s *site) conclude(work string, p plan) (done bool, err error) {
	if err := s.at("check"); err != nil {
		return false, err
	}
	for i, f := range p.Files {
		st, err := s.place.stat(f.Path)
		if err != nil || !f.same(identityOf(&st)) {
			return false, moved(f.Path)
		}
		p.Files[i].identity = identityOf(&st)
	}
	if err := s.held(); err != nil {
		return false, err
	}
	if err := s.writeRecord(work, p); err != nil {
		return false, err
	}
	if err := s.at("record"); err != nil {
		return false, err
	}
	if err := s.place.move(path.Join(work, restored), s.place, restored); errors.Is(err, fs.ErrExist) {
		return false, moved(restored)
	} else if err != nil {
		return false, err
	}
	if err := s.at("sweep"); err != nil {
		return true, err
	}
	// Remove the plan only after the new names are on disk.
	if err := syncNames(s.root, dirsOf(".", placedPaths(p.Files))...); err != nil {
		return true, err
	}
	if err := s.root.Remove(path.Join(work, planFile)); err != nil {
		return true, err
	}
	return true, s.root.RemoveAll(work)
}

func placedPaths(files []placed) []string {
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	return paths
}

// finish completes the killed restore whose files are in work, or removes them.
func (s *site) finish(work string) error {
	text, _, err := s.read(path.Join(work, planFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s.root.RemoveAll(work)
	}
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return &fs.PathError{Op: "read", Path: filepath.Join(s.root.Name(), work, planFile), Err: err}
	}
	if now, _, err := s.report(restored); err == nil && now.ID == path.Base(work) {
		return s.root.RemoveAll(work) // only this removal was left to do
	}
	if err := s.giveBack(work, p); err != nil {
		return err
	}
	err = s.feasible(work, p)
	if err == nil {
		if err = s.move(work, p, true); err == nil {
			s.recall()
			return nil
		}
	}
	if !errors.Is(err, errMoved) || s.killed {
		return err
	}
	s.log.Warn("cannot finish a restore that was killed, because files of it have changed", "dir", s.dir, "step", p.Done.Step, "error", err)
	s.unfinished = append(s.unfinished, work)
	s.before = append(s.before, p.Before...)
	for _, f := range p.Files {
		f.CTime = 0 // renaming has changed it
		s.before = append(s.before, f)
	}
	return nil
}

// giveBack moves back files that a killed restore moved away although the plan does not name
// them.
func (s *site) giveBack(work string, p plan) error {
	for i, a := range p.Aside {
		name := path.Join(work, asideDir, strconv.Itoa(i))
		st, err := s.place.stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !a.same(identityOf(&st)) {
			err = s.place.move(name, s.place, a.Path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// feasible returns errMoved when a plan cannot be finished.
func (s *site) feasible(work string, p plan) error {
	goes, comes := make(map[string]identity, len(p.Aside)), make(map[string]bool, len(p.Files))
	for _, f := range p.Files {
		comes[f.Path] = true
	}
	for _, a := range p.Aside {
		goes[a.Path] = a.identity
		if st, err := s.place.stat(a.Path); !comes[a.Path] && err == nil && !a.same(identityOf(&st)) {
			return moved(a.Path)
		}
	}
	for _, f := range append(slices.Clone(p.Files), placed{Path: restored}) {
		st, err := s.place.stat(f.Path)
		gone, known := goes[f.Path]
		switch {
		case errors.Is(err, fs.ErrNotExist) && f.Path == restored:
		case errors.Is(err, fs.ErrNotExist):
			if st, err := s.place.stat(path.Join(work, stagedDir, f.Path)); err != nil || !f.same(identityOf(&st)) {
				return moved(f.Path)
			}
		case err != nil:
			return moved(f.Path)
		case f.same(identityOf(&st)), known && gone.same(identityOf(&st)):
		default:
			return moved(f.Path)
		}
	}
	return nil
}
