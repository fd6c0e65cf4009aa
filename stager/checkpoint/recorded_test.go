package checkpoint

import (
	"bufio"
	"compress/bzip2"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// recordingsDir contains the operations of libraries that wrote checkpoints: see record.py there.
const recordingsDir = "../../e2e/frameworks/testdata"

// op is one operation of a recording on the output's directory.
type op struct {
	Op       string `json:"op"`
	Path     string `json:"path"`
	To       string `json:"to"`
	Off      int64  `json:"off"`
	Size     int64  `json:"size"`
	Data     []byte `json:"data"`
	Truncate bool   `json:"truncate"`
}

// recording is the sequence of operations of a library. truth contains the files of each complete
// checkpoint, by the index of the mark at which the library reported it.
type recording struct {
	name  string // way of saving and version: torch_dcp-2.15.0
	ops   []op
	truth map[int]map[string]string
}

// recordings reads the recordings whose names begin with one of the prefixes, or all without any.
func recordings(t *testing.T, prefixes ...string) (all []*recording) {
	t.Helper()
	paths, err := filepath.Glob(recordingsDir + "/*.jsonl.bz2")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d recordings, %v", len(paths), err)
	}
	for _, p := range paths {
		name := strings.TrimSuffix(filepath.Base(p), ".jsonl.bz2")
		if len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		r := &recording{name: name, ops: readOps(t, p)}
		r.findTruth(t)
		all = append(all, r)
	}
	return all
}

// chosen returns all recordings, or every sixth one with -short.
func chosen(all []*recording) []*recording {
	if !testing.Short() {
		return all
	}
	slices.SortFunc(all, func(a, b *recording) int { return strings.Compare(a.name, b.name) })
	var some []*recording
	for i := 0; i < len(all); i += 6 {
		some = append(some, all[i])
	}
	return some
}

func readOps(t *testing.T, p string) (ops []op) {
	t.Helper()
	f, err := os.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // opened for reading
	lines := bufio.NewScanner(bzip2.NewReader(f))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var o op
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		if o.Op != "versions" {
			ops = append(ops, o)
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return ops
}

func (r *recording) findTruth(t *testing.T) {
	t.Helper()
	w := newWriter(t, t.TempDir())
	defer w.kill()
	r.truth = make(map[int]map[string]string)
	for i, o := range r.ops {
		if w.do(o); o.Op == "mark" {
			r.truth[i] = checkpointAt(t, w.dir, o.Path)
		}
	}
}

// checkpointAt returns the files of a checkpoint in a directory. The checkpoint is a directory, a
// file, or a group of files that begin with its name.
func checkpointAt(t *testing.T, dir, name string) map[string]string {
	t.Helper()
	info, err := os.Lstat(filepath.Join(dir, name))
	if err == nil && info.IsDir() {
		return read(t, filepath.Join(dir, name))
	}
	files := make(map[string]string)
	found, _ := filepath.Glob(filepath.Join(dir, name) + "*") // the pattern is valid
	for _, p := range found {
		base := filepath.Base(p)
		if of, grouped := groupOf(base); base != filepath.Base(name) && (!grouped || of != filepath.Base(name)) {
			continue
		}
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		files[base] = string(text)
	}
	return files
}

// canonical returns one text for a set of files.
func canonical(files map[string]string) string {
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%q %q\n", p, files[p])
	}
	return b.String()
}

// writer executes the operations of a library and keeps files open as long as the library did.
// With a clock, the times of files do not depend on how busy the machine is.
type writer struct {
	t    *testing.T
	dir  string
	open map[string][]*os.File
	lax  bool // files removed by another process are no error

	clock time.Time // of the last change; zero: the kernel's times stay
}

func newWriter(t *testing.T, dir string) *writer {
	return &writer{t: t, dir: dir, open: make(map[string][]*os.File)}
}

// kill closes all files, as the exit of the process does.
func (w *writer) kill() {
	for _, files := range w.open {
		for _, f := range files {
			_ = f.Close() // the test reads what it wrote
		}
	}
	clear(w.open)
}

func (w *writer) do(o op) {
	w.t.Helper()
	_, missing := os.Lstat(filepath.Join(w.dir, o.Path))
	if err := w.try(o); err != nil && !(w.lax && errors.Is(err, fs.ErrNotExist)) {
		w.t.Fatalf("%s %s: %v", o.Op, o.Path, err)
	}
	switch o.Op {
	case "create":
		if missing != nil || o.Truncate {
			w.stamp(o.Path, path.Dir(o.Path))
		}
	case "mkdir", "arrive":
		w.stamp(o.Path, path.Dir(o.Path))
	case "write", "truncate":
		w.stamp(o.Path)
	case "rename", "link":
		w.stamp(path.Dir(o.Path), path.Dir(o.To))
	case "remove":
		w.stamp(path.Dir(o.Path))
	}
}

// stamp gives the next time of the clock to what was written, and to directories in which an entry
// appeared or disappeared. Stager compares these times. In virtual time those of the kernel tell only
// how long the test has taken.
func (w *writer) stamp(paths ...string) {
	w.t.Helper()
	if w.clock.IsZero() {
		return
	}
	w.clock = w.clock.Add(time.Microsecond)
	for _, p := range paths {
		if err := os.Chtimes(filepath.Join(w.dir, p), w.clock, w.clock); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
}

// begin writes a file of a checkpoint that comes after those of the recording.
func (w *writer) begin(dir, file string) {
	w.t.Helper()
	write(w.t, filepath.Join(w.dir, dir), map[string]string{file: "x"})
	w.stamp(path.Join(dir, file), dir)
}

func (w *writer) try(o op) error {
	p := filepath.Join(w.dir, o.Path)
	switch o.Op {
	case "mkdir":
		if err := os.Mkdir(p, 0o755); !errors.Is(err, fs.ErrExist) { // only one of two ranks creates it
			return err
		}
	case "create":
		flags := os.O_RDWR | os.O_CREATE
		if o.Truncate {
			flags |= os.O_TRUNC
		}
		f, err := os.OpenFile(p, flags, 0o644)
		if err == nil {
			w.open[o.Path] = append(w.open[o.Path], f)
		}
		return err
	case "arrive":
		return os.WriteFile(p, o.Data, 0o644)
	case "write", "truncate":
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if o.Op == "write" {
			_, err = f.WriteAt(o.Data, o.Off)
		} else {
			err = f.Truncate(o.Size)
		}
		return errors.Join(err, f.Close())
	case "close":
		if files := w.open[o.Path]; len(files) > 0 {
			w.open[o.Path] = files[1:]
			return files[0].Close()
		}
	case "rename":
		w.moveOpen(o.Path, o.To)
		return os.Rename(p, filepath.Join(w.dir, o.To))
	case "link":
		return os.Link(p, filepath.Join(w.dir, o.To))
	case "remove":
		return os.Remove(p)
	}
	return nil // a mark, or fsync
}

func (w *writer) moveOpen(from, to string) {
	for p, files := range w.open {
		if rest, ok := strings.CutPrefix(p, from); ok && (rest == "" || rest[0] == '/') {
			delete(w.open, p)
			w.open[to+rest] = files
		}
	}
}

// notify reports an operation to an Uploader like the kernel does.
func notify(u *Uploader, o op) {
	to := o.To
	if o.Op == "arrive" {
		to = o.Path
	}
	if to != "" && !strings.Contains(to, "/") && (o.Op == "arrive" || o.Op == "rename" && !claimsStep(o.Path)) {
		u.renames.into(to)
	}
}

// savedStep is a COMMIT of a store and its files.
type savedStep struct {
	Commit
	dir   string
	text  string // of COMMIT.json
	files map[string]string
}

// committedIn reads all COMMITs of a store, except those whose text is in known.
func committedIn(t *testing.T, b *mem.Backend, known map[string]bool) (all []savedStep) {
	t.Helper()
	for _, dir := range commits(b) {
		text, _ := b.Get(dir + "/" + commitKey)
		if known[string(text)] {
			continue
		}
		c, err := DecodeCommit(text)
		if err != nil {
			t.Fatal(err)
		}
		files := make(map[string]string)
		for _, f := range c.Files {
			data, ok := b.Get(c.key(dir, f))
			if !ok {
				t.Errorf("%s: %s is not in the store", dir, f.Path)
			}
			files[f.Path] = string(data)
		}
		all = append(all, savedStep{c, dir, string(text), files})
	}
	return all
}
