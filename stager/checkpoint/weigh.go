package checkpoint

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/detect"
	"github.com/stager-dev/stager/stager/checkpoint/format"
	"github.com/stager-dev/stager/window/disk"
)

// judged is the result of reading a file in one state.
type judged struct {
	result format.Result
	text   string // content of a file that is evidence
}

// trail is the history of a checkpoint in earlier scans.
type trail struct {
	judged map[local]judged
	files  []local // sorted by path; the earlier list while files are being removed
	shrunk int64   // modification time of the newest file when a removal was seen; 0: none

	advised bool // the log says how the user can make it final
}

// detection decides whether checkpoints of a directory are complete, by what it saw of them and of
// earlier ones. Uploader.directory guards it: between two views of a checkpoint there is no other.
type detection struct {
	cfg  *Config
	log  *slog.Logger
	root *os.Root

	trails   map[string]*trail // of incomplete checkpoints, by name
	shapes   detect.Shapes     // of complete checkpoints; a hint, stored on disk
	quietOne *detect.View      // the newest that only a quiet period completed
}

// forget forgets checkpoints of other names.
func (d *detection) forget(names map[string]int64) {
	maps.DeleteFunc(d.trails, func(name string, _ *trail) bool { _, ok := names[name]; return !ok })
}

// weigh returns the view of a checkpoint. It reads each file once per state.
func (d *detection) weigh(t tree, name string, files []local) (detect.View, error) {
	before := d.trails[name]
	now := &trail{judged: make(map[local]judged, len(files)), files: files}
	v := detect.View{
		Name: name, One: t.only != "" && !t.grouped, Group: t.grouped, Notes: make(map[string]detect.Note), Beside: make(map[string]detect.Note),
		Part: d.cfg.Nodes > 1,
	}
	written := int64(0)
	for _, f := range files {
		j, ok := judged{}, false
		if before != nil {
			j, ok = before.judged[f]
		}
		if !ok {
			var err error
			if j, err = t.judge(f); err != nil {
				return v, err
			}
		}
		now.judged[f] = j
		written = max(written, f.MTime)
		v.Files = append(v.Files, detect.File{Path: f.Path, Size: f.Size, Modified: f.MTime, Format: j.result})
		if j.text != "" {
			v.Notes[f.Path] = detect.Note{Text: j.text, Modified: f.MTime}
		}
	}
	if before != nil {
		now.advised = before.advised
		gone := removedFrom(before.files, files)
		if now.shrunk = before.shrunk; gone != "" && now.shrunk == 0 {
			now.shrunk = written
		}
		// A process that continues to write is not removing the checkpoint.
		if gone == "" || written > now.shrunk {
			now.shrunk = 0
		} else {
			v.Shrunk, now.files = gone, before.files
		}
	}
	d.trails[name] = now
	return v, d.beside(&v)
}

// weighHeld returns the view of the held files of a checkpoint that was removed. Its trail, which has
// recorded the removal, stays as it is.
func (d *detection) weighHeld(t tree, name string, files []local) (detect.View, error) {
	before := d.trails[name]
	delete(d.trails, name)
	v, err := d.weigh(t, name, files)
	if d.trails[name] = before; before == nil {
		delete(d.trails, name)
	}
	return v, err
}

// removedFrom returns a path that is missing from now because its file was removed, or "". Both
// slices must be sorted. A file that was renamed is not removed: another path has its inode now, and
// had another one before. Programs write under temporary names of their own, which no list contains.
func removedFrom(before, now []local) string {
	paths := slices.Collect(pathsOf(now))
	if detect.Removed(slices.Collect(pathsOf(before)), paths) == "" {
		return ""
	}
	type place struct {
		path  string
		inode uint64
	}
	known, renamed := make(map[place]bool, len(before)), make(map[uint64]bool)
	for _, f := range before {
		known[place{f.Path, f.Inode}] = true
	}
	for _, f := range now {
		if f.Inode != 0 && !known[place{f.Path, f.Inode}] {
			renamed[f.Inode] = true
		}
	}
	left := slices.DeleteFunc(slices.Clone(before), func(f local) bool { return renamed[f.Inode] })
	return detect.Removed(slices.Collect(pathsOf(left)), paths)
}

// advise logs once how the user can make a provisional checkpoint final, if later ones
// cannot confirm it.
func (d *detection) advise(name string, step int64, j detect.Judgement) {
	if t := d.trails[name]; j.Advice != "" && t != nil && !t.advised {
		t.advised = true
		d.log.Warn("a checkpoint is saved provisionally, and later ones will not make it final",
			"checkpoint", name, "step", step, "reason", j.Reason, "advice", j.Advice)
	}
}

// judge checks the structure of a file, and reads its content if that is evidence.
func (t tree) judge(want local) (judged, error) {
	f, err := t.openFile(want.Path)
	if err != nil {
		return judged{}, err
	}
	defer f.Close() // opened for reading
	result, err := format.Judge(want.Path, f, want.Size)
	if err != nil || want.Size > detect.NoteLimit || !detect.NeedsNotice(want.Path) {
		return judged{result: result}, err
	}
	text := make([]byte, want.Size)
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return judged{}, err
	}
	return judged{result, string(text)}, nil
}

// beside reads the files next to a checkpoint that may name it.
func (d *detection) beside(v *detect.View) error {
	for _, base := range []string{"latest", "latest_checkpointed_iteration.txt", "checkpoint", "checkpoint_manager_snapshot.json"} {
		p := path.Join(path.Dir(v.Name), base)
		if p == v.Name {
			continue
		}
		note, err := readNote(d.root, p)
		if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*disk.NotRegularError)) {
			continue
		}
		if err != nil {
			return err
		}
		if note.Text != "" {
			v.Beside[base] = note
		}
	}
	return nil
}

// readNote reads a small regular file. The text of a large file is empty.
func readNote(root *os.Root, p string) (note detect.Note, err error) {
	f, err := disk.OpenFile(root, p, os.O_RDONLY, 0)
	if err != nil {
		return note, err
	}
	defer f.Close() // opened for reading
	info, err := f.Stat()
	if err != nil || info.Size() > 1<<20 {
		return note, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return detect.Note{Text: string(text), Modified: info.ModTime().UnixNano()}, err
}

// judgeView returns the judgement on a checkpoint. It compares a sign with the times of the
// directories. quiet is the quiet period.
func (d *detection) judgeView(t tree, v *detect.View, quiet time.Duration) (detect.Judgement, error) {
	j := detect.Judge(*v, &d.shapes, quiet)
	if !strings.HasPrefix(j.Word, "sign ") || t.only != "" {
		return j, nil
	}
	err := fs.WalkDir(disk.FS(t.root), ".", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			v.Changed = max(v.Changed, info.ModTime().UnixNano())
		}
		return err
	})
	return detect.Judge(*v, &d.shapes, quiet), err
}

// learn records the shape of a complete checkpoint, and reports whether it recorded one. A
// checkpoint that only a quiet period completed is recorded when the next one has begun. The files
// of one node of several predict nothing about the next checkpoint.
func (d *detection) learn(v detect.View, j detect.Judgement) (learned bool) {
	if v.Part {
		return false
	}
	if d.quietOne != nil && d.quietOne.Name != v.Name {
		d.learnShape(*d.quietOne, false)
		d.quietOne, learned = nil, true
	}
	switch {
	case j.Final():
		d.learnShape(v, true)
	case j.Kind == detect.Quiet:
		d.quietOne = &v
		return learned
	case j.Word == "missing" && (v.Quiet >= d.cfg.QuietPeriod || v.Next && v.Quiet >= detect.ShortQuiet):
		d.learnShape(v, false)
	default:
		return learned
	}
	return true
}

func (d *detection) learnShape(v detect.View, final bool) {
	v.Files = slices.Clone(v.Files)
	if line := d.shapes.Learn(v, final); line != "" {
		d.log.Info("checkpoints of this output have a new shape", "checkpoint", v.Name, "change", line)
	}
	text, err := json.Marshal(&d.shapes)
	if err == nil {
		err = disk.ReplaceSmall(d.root, shapesName, text, 0o600, false)
	}
	if err != nil {
		d.log.Warn("cannot record the shapes of checkpoints, a restart learns them again", "error", err)
	}
}

// shapesName is the file of the shapes that earlier processes learned; a hint.
const shapesName = private + "/shapes"

// recallShapes reads what an earlier process learned.
func (d *detection) recallShapes() {
	text, err := disk.ReadSmall(d.root, shapesName, mostSnapshot)
	if err != nil || json.Unmarshal(text, &d.shapes) != nil {
		d.shapes = detect.Shapes{} // missing or corrupt
	}
}
