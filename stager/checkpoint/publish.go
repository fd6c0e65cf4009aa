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

// plan is what publish does where the directory exists. While it is on the disk every
// staged file is good, and a restore that begins finishes it.
type plan struct {
	Done   Restored `json:"done"`
	Files  []placed `json:"files"`  // as they are staged
	Aside  []placed `json:"aside"`  // what goes, as it was when that was found to be right
	Before []placed `json:"before"` // by earlier restores
}

// errMoved is within errors of kind Changed.
var errMoved = errors.New("it changed while the checkpoint was put there: run restore again")

func moved(p string) error {
	return &backends.Error{Op: "restore", Key: p, Kind: backends.Changed, Err: errMoved}
}

// publish brings the staged files to their place.
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
	// Files move only when a loss of power cannot take the plan, which knows whose they are.
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

// publishWhole renames the directory of staged files to that of the site.
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
	// This replaces an empty directory, and nothing else.
	if err := s.root.Rename(staged, filepath.Base(s.dir)); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
			return backends.Errorf(backends.Changed, "restore", s.dir, "something was put there while the checkpoint was brought: run restore again")
		}
		return err
	}
	now, err := s.place.stat(filepath.Base(s.dir))
	if err == nil && now.Ino != st.Ino {
		err = moved(s.dir)
	}
	return err
}

// writeNew writes a file that is there whole or not at all.
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

// writeRecord writes the RESTORED.json of a plan into work.
func (s *site) writeRecord(work string, p plan) error {
	text, err := json.MarshalIndent(record{p.Done, path.Base(work), p.Files}, "", " ")
	if err != nil {
		return err
	}
	return s.writeNew(path.Join(work, restored), append(text, '\n'))
}

// step is one rename of a move, to be undone.
type step struct {
	from, to string
	is       identity
}

// move carries a plan out, or goes on with that of a killed process. RESTORED.json of
// before goes first, and the new one comes last, after a look at every file. When
// something is not as the plan says, what was done is undone. After RESTORED.json has its name
// nothing is: the restore is done, and what is left in work is for the next one to remove.
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
			continue // the files that come find out
		} else if err != nil {
			return err
		}
		if is, comes := staged[a.Path]; comes && is.same(identityOf(&st)) {
			continue // it came before a kill
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
			continue // it came before a kill
		}
		if err := s.rename(step{from, f.Path, f.identity}, &done); err != nil {
			return err
		}
	}
	concluded, err = s.conclude(work, p)
	return err
}

// rename makes one step, and takes it back when it moved something else.
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

// undo takes steps back, the last one first, and then the plan.
func (s *site) undo(work string, done []step, resumed bool) error {
	for _, st := range slices.Backward(done) {
		if err := s.at("undo " + st.from); err != nil {
			return err
		}
		if err := s.place.move(st.to, s.place, st.from); err != nil {
			return err // the plan stays, and with it what it knows
		}
	}
	if resumed {
		return nil // only the plan knows what came before the kill
	}
	return s.root.Remove(path.Join(work, planFile))
}

// conclude looks at every file once more, and writes RESTORED.json. done reports whether
// that has its name, with an error or without.
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
	// The plan goes when the disk has the names that it gave.
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

// finish brings to its end what a killed restore left in work, or removes it.
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
		return s.root.RemoveAll(work) // only this was left to do
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
	s.log.Warn("a restore that was killed cannot be finished, since files of it changed", "dir", s.dir, "step", p.Done.Step, "error", err)
	s.unfinished = append(s.unfinished, work)
	s.before = append(s.before, p.Before...)
	for _, f := range p.Files {
		f.CTime = 0 // that was before it was renamed
		s.before = append(s.before, f)
	}
	return nil
}

// giveBack returns what a kill left aside and is not what was to go.
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

// feasible reports by errMoved when a plan cannot be finished.
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
