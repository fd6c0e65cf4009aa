package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// Early snapshots outlive the process: the trainer may remove a checkpoint while stager is not
// running, and then the links are its only copy. Each directory has a record of what its files do
// not show.

// earlyName is the name of the record in an early snapshot's directory.
const earlyName = "early.json"

// earlyRecord is the record of a checkpoint that an earlier process held early.
type earlyRecord struct {
	Name    string    `json:"name"`
	Step    int64     `json:"step"`
	One     bool      `json:"one,omitempty"`
	Grouped bool      `json:"grouped,omitempty"`
	Since   time.Time `json:"since"`
	View    string    `json:"view,omitempty"`
	Round   int       `json:"round,omitempty"`
}

func (e *early) record() earlyRecord {
	return earlyRecord{e.snap.Name, e.snap.Step, e.one, e.grouped, e.since, e.snap.View, e.snap.Round}
}

// rememberEarly writes the record of e if it has changed. It does not sync it, so a power loss
// may lose what is held early.
func (u *Uploader) rememberEarly(e *early) error {
	now := e.record()
	if now == e.known {
		return nil
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = disk.ReplaceSmall(u.root, path.Join(e.dir(), earlyName), text, 0o600, false)
	}
	if err == nil {
		e.known = now
	}
	return err
}

// recallEarly takes over what an earlier process held early, and removes what it cannot use.
func (u *Uploader) recallEarly() error {
	entries, err := fs.ReadDir(disk.FS(u.root), snapshotsName)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		id, ok := strings.CutPrefix(entry.Name(), earlyPrefix)
		if !ok || !entry.IsDir() {
			continue
		}
		e, err := u.readEarly(id)
		if err == nil && u.early[e.snap.Name] == nil {
			u.early[e.snap.Name] = e
			u.detection.trails[e.snap.Name] = e.trail()
			continue
		}
		if e != nil && err != nil {
			u.missUnusable(e.snap, err)
		}
		u.log.Debug("cannot use the files that an earlier process held of an incomplete checkpoint", "directory", entry.Name(), "error", err)
		if err := u.root.RemoveAll(path.Join(snapshotsName, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// readEarly also returns what is known of a checkpoint whose files cannot be used.
func (u *Uploader) readEarly(id string) (*early, error) {
	if u.cfg.Mode != ModeCheckpoint || u.cfg.Hold.Checkpoints == 0 || !uploadID.MatchString(id) {
		return nil, errors.New("nothing is held early")
	}
	e := &early{snap: &snapshot{ID: id}, linked: make(map[string]local), recalled: true}
	text, err := disk.ReadSmall(u.root, path.Join(e.dir(), earlyName), disk.Limit)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &e.known); err != nil {
		return nil, err
	}
	if err := checkPath(e.known.Name); err != nil {
		return nil, err
	}
	r := e.known
	e.snap.Name, e.snap.Step, e.snap.View, e.snap.Round = r.Name, r.Step, r.View, r.Round
	e.one, e.grouped, e.since = r.One, r.Grouped, r.Since
	root, err := u.root.OpenRoot(e.dir() + "/" + dataDir)
	if err != nil {
		return e, err
	}
	t := tree{root: root}
	defer t.close()
	files, _, err := t.files()
	if err != nil {
		return e, err
	}
	if len(files) == 0 {
		return e, errors.New("it holds no file")
	}
	for _, f := range files {
		e.linked[f.Path] = f
	}
	return e, nil
}

// trail returns what the earlier process observed of the checkpoint. It lets detection recognize
// a removal that started while stager was not running. A file that was written later belongs to a
// save that continued.
func (e *early) trail() *trail {
	t := &trail{files: e.links()}
	for _, f := range e.linked {
		t.shrunk = max(t.shrunk, f.MTime)
	}
	return t
}

// disownEarly drops early snapshots of views that former reports, as no save waits for
// them.
func (u *Uploader) disownEarly(former func(view string) bool) {
	for _, name := range slices.Sorted(maps.Keys(u.early)) {
		if former(u.early[name].snap.View) {
			u.dropEarly(name)
		}
	}
}
