package checkpoint

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
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

// weigh returns the view of a checkpoint. It reads each file once per state.
func (u *Uploader) weigh(t tree, name string, files []local) (detect.View, error) {
	before := u.trails[name]
	now := &trail{judged: make(map[local]judged, len(files)), files: files}
	v := detect.View{
		Name: name, One: t.only != "" && !t.grouped, Group: t.grouped, Notes: make(map[string]detect.Note), Beside: make(map[string]detect.Note),
		Part: u.cfg.Nodes > 1,
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
	u.trails[name] = now
	return v, u.beside(&v)
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

// adviseLocked logs once how the user can make a provisional checkpoint final, if later ones
// cannot confirm it.
func (u *Uploader) adviseLocked(name string, step int64, j detect.Judgement) {
	if t := u.trails[name]; j.Advice != "" && t != nil && !t.advised {
		t.advised = true
		u.log.Warn("a checkpoint is saved provisionally, and later ones will not make it final",
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
func (u *Uploader) beside(v *detect.View) error {
	for _, base := range []string{"latest", "latest_checkpointed_iteration.txt", "checkpoint", "checkpoint_manager_snapshot.json"} {
		p := path.Join(path.Dir(v.Name), base)
		if p == v.Name {
			continue
		}
		note, err := readNote(u.root, p)
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
func (u *Uploader) judgeView(t tree, v *detect.View, quiet time.Duration) (detect.Judgement, error) {
	j := detect.Judge(*v, &u.shapes, quiet)
	if !strings.HasPrefix(j.Word, "sign ") || t.only != "" {
		return j, nil
	}
	err := fs.WalkDir(disk.FS(t.root), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			v.Changed = max(v.Changed, info.ModTime().UnixNano())
		}
		return err
	})
	return detect.Judge(*v, &u.shapes, quiet), err
}

// learn records the shape of a complete checkpoint, and reports whether it recorded one. A
// checkpoint that only a quiet period completed is recorded when the next one has begun. The files
// of one node of several predict nothing about the next checkpoint.
func (u *Uploader) learn(v detect.View, j detect.Judgement) (learned bool) {
	if v.Part {
		return false
	}
	if u.quietOne != nil && u.quietOne.Name != v.Name {
		u.learnShape(*u.quietOne, false)
		u.quietOne, learned = nil, true
	}
	switch {
	case j.Final():
		u.learnShape(v, true)
	case j.Kind == detect.Quiet:
		u.quietOne = &v
		return learned
	case j.Word == "missing" && (v.Quiet >= u.cfg.QuietPeriod || v.Next && v.Quiet >= detect.ShortQuiet):
		u.learnShape(v, false)
	default:
		return learned
	}
	return true
}

func (u *Uploader) learnShape(v detect.View, final bool) {
	v.Files = slices.Clone(v.Files)
	if line := u.shapes.Learn(v, final); line != "" {
		u.log.Info("checkpoints of this output have a new shape", "checkpoint", v.Name, "change", line)
	}
	text, err := json.Marshal(&u.shapes)
	if err == nil {
		err = disk.ReplaceSmall(u.root, shapesName, text, 0o600, false)
	}
	if err != nil {
		u.log.Warn("cannot record the shapes of checkpoints, a restart learns them again", "error", err)
	}
}

// shapesName is the file of the shapes that earlier processes learned; a hint.
const shapesName = private + "/shapes"

// recallShapes reads what an earlier process learned.
func (u *Uploader) recallShapes() {
	text, err := disk.ReadSmall(u.root, shapesName, mostSnapshot)
	if err != nil || json.Unmarshal(text, &u.shapes) != nil {
		u.shapes = detect.Shapes{} // missing or corrupt
	}
}
