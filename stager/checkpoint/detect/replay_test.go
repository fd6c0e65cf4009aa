package detect

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/format"
)

// op is one operation of a recorded library: see e2e/frameworks/record.py.
type op struct {
	Op       string            `json:"op"`
	Path     string            `json:"path"`
	To       string            `json:"to"`
	Off      int               `json:"off"`
	Size     int               `json:"size"`
	Data     []byte            `json:"data"`
	Truncate bool              `json:"truncate"`
	Versions map[string]string `json:"versions"`
}

func recorded(t *testing.T) map[string][]op {
	t.Helper()
	paths, err := filepath.Glob("../../../e2e/frameworks/testdata/*.jsonl.bz2")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d recordings, %v", len(paths), err)
	}
	all := make(map[string][]op)
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bzip2.NewReader(f))
		lines.Buffer(nil, 16<<20)
		name := strings.TrimSuffix(filepath.Base(p), ".jsonl.bz2")
		for lines.Scan() {
			var o op
			if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
				t.Fatal(err)
			}
			all[name] = append(all[name], o)
		}
		if lines.Err() != nil || f.Close() != nil {
			t.Fatal(lines.Err())
		}
	}
	return all
}

// disk is an output directory in memory. Each operation takes a minute, so that each boundary is
// a pause longer than all timeouts.
type disk struct {
	now   int64
	files map[string]*inode
	dirs  map[string]int64 // modification times
	seen  map[string][]string
	shrunk,
	renamed map[string]bool
}

type inode struct {
	data     []byte
	modified int64
	named    int64
	writers  int
	judged   *format.Result
}

func newDisk() *disk {
	return &disk{
		files: make(map[string]*inode), dirs: make(map[string]int64), seen: make(map[string][]string),
		shrunk: make(map[string]bool), renamed: make(map[string]bool),
	}
}

func (d *disk) do(o op) {
	d.now += int64(time.Minute)
	f := d.files[o.Path]
	entry := func(p string) { d.dirs[path.Dir(p)] = d.now }
	write := func() { f.modified, f.judged = d.now, nil }
	switch o.Op {
	case "mkdir":
		d.dirs[o.Path] = d.now
	case "create":
		if f == nil {
			f = new(inode)
			d.files[o.Path] = f
			entry(o.Path)
			write()
		}
		if f.writers++; o.Truncate {
			f.data = nil
			write()
		}
	case "arrive":
		d.files[o.Path] = &inode{data: o.Data, modified: d.now}
		entry(o.Path)
		d.renamed[o.Path] = true
	case "write":
		end := o.Off + len(o.Data)
		f.data = append(f.data, make([]byte, max(0, end-len(f.data)))...)
		copy(f.data[o.Off:], o.Data)
		write()
	case "truncate":
		f.data = append(f.data, make([]byte, max(0, o.Size-len(f.data)))...)[:o.Size]
		write()
	case "close":
		if f != nil && f.writers > 0 {
			f.writers--
		}
	case "remove":
		delete(d.files, o.Path)
		entry(o.Path)
	case "rename", "link":
		for _, p := range slices.Collect(maps.Keys(d.files)) {
			if rest, ok := strings.CutPrefix(p, o.Path); ok && (rest == "" || rest[0] == '/') {
				d.files[o.To+rest] = d.files[p]
				if rest == "" {
					d.files[p].named = d.now
				}
				if o.Op == "rename" {
					delete(d.files, p)
				}
			}
		}
		entry(o.Path)
		entry(o.To)
		d.renamed[o.To] = true
	}
}

// under reports whether a file belongs to a checkpoint, and returns its path there.
func under(name, p string) (string, bool) {
	if p == name {
		return path.Base(p), true
	}
	if rest, ok := strings.CutPrefix(p, name+"/"); ok {
		return rest, true
	}
	rest, ok := strings.CutPrefix(p, name+".")
	return path.Base(p), ok && (rest == "index" || rest == "meta" || strings.HasPrefix(rest, "data-"))
}

func (d *disk) view(t *testing.T, name string, killed bool) View {
	t.Helper()
	v := View{Name: name, Notes: make(map[string]Note), Beside: make(map[string]Note), Renamed: d.renamed[name]}
	var names []string
	for p, f := range d.files {
		rel, ok := under(name, p)
		if NeedsNotice(p) && ok {
			v.Notes[rel] = Note{string(f.data), f.modified}
		} else if NeedsNotice(p) && path.Dir(p) == path.Dir(name) {
			v.Beside[path.Base(p)] = Note{string(f.data), f.modified}
		}
		if !ok {
			continue
		}
		if f.judged == nil {
			judged, err := format.Judge(rel, bytes.NewReader(f.data), int64(len(f.data)))
			if err != nil {
				t.Fatal(err)
			}
			f.judged = &judged
		}
		v.One = v.One || p == name
		v.Group = v.Group || p != name && !strings.HasPrefix(p, name+"/")
		v.Files = append(v.Files, File{Path: rel, Size: int64(len(f.data)), Modified: f.modified, Named: f.named, Writing: f.writers > 0 && !killed, Format: *f.judged})
		names = append(names, rel)
	}
	for p, at := range d.dirs {
		if p == name || strings.HasPrefix(p, name+"/") {
			v.Changed = max(v.Changed, at)
		}
	}
	slices.SortFunc(v.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	slices.Sort(names)
	if gone := Removed(d.seen[name], names); gone != "" && len(names) > 0 {
		v.Shrunk = gone
	} else {
		d.seen[name] = names
	}
	return v
}

// content returns the files of a checkpoint.
func (d *disk) content(name string) string {
	var all []string
	for p, f := range d.files {
		if rel, ok := under(name, p); ok {
			all = append(all, fmt.Sprintf("%q: %q", rel, f.data))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// outcome holds the counts of a replay.
type outcome struct {
	boundaries, torn, provisional, missed int
	evidence                              map[string]bool // of complete states, judged at once and without shapes
	learned                               map[string]bool // likewise, of later steps with shapes
}

// replay judges every checkpoint at every boundary, where the writer is paused or killed. It
// compares a stager that saw everything with one that starts there.
func replay(t *testing.T, name string, ops []op) (out outcome) {
	truth := make(map[string][]string)
	d := newDisk()
	for _, o := range ops {
		if o.Op == "mark" {
			truth[o.Path] = append(truth[o.Path], d.content(o.Path))
		} else {
			d.do(o)
		}
	}
	out.evidence, out.learned = make(map[string]bool), make(map[string]bool)
	d = newDisk()
	shapes := new(Shapes)
	for i, o := range ops {
		if o.Op == "mark" {
			v := d.view(t, o.Path, true)
			out.evidence[Judge(v, nil, time.Minute).Word] = true
			if shapes.Known(o.Path) {
				v.Quiet = ShortQuiet
				out.learned[Judge(v, shapes, time.Minute).Word] = true
			}
			v.Quiet = time.Hour
			if j := Judge(v, shapes, time.Minute); !j.Complete() {
				out.missed++
				t.Errorf("%s: %s is complete at operation %d, and judged %s: %s", name, o.Path, i, j.Kind, j.Reason)
			}
			shapes.Learn(v, true)
			continue
		}
		d.do(o)
		for _, candidate := range slices.Sorted(maps.Keys(truth)) {
			whole := slices.Contains(truth[candidate], d.content(candidate))
			for _, killed := range []bool{false, true} {
				v := d.view(t, candidate, killed)
				v.Quiet = time.Hour
				fresh := v
				fresh.Shrunk, fresh.Renamed = "", false
				for _, judged := range []struct {
					by string
					Judgement
				}{
					{"one that saw all", Judge(v, shapes, time.Minute)},
					{"one that saw all without shapes", Judge(v, nil, time.Minute)},
					{"one that starts here", Judge(fresh, nil, time.Minute)},
				} {
					out.boundaries++
					if j := judged.Judgement; !whole && j.Final() {
						out.torn++
						t.Errorf("%s: %s is judged final (%s: %s) by %s at operation %d (%s %s), killed %v, and is incomplete", name, candidate, j.Word, j.Reason, judged.by, i, o.Op, o.Path, killed)
					} else if !whole && j.Complete() {
						out.provisional++
					}
				}
			}
		}
	}
	return out
}

// An incomplete state of any recorded library is never final, whatever the pause and whichever
// process is killed. No complete state is missed.
func TestReplayOfRecordedFrameworks(t *testing.T) {
	all := recorded(t)
	t.Logf("%-34s %9s %5s %11s %6s  %s", "recording", "judgements", "torn", "provisional", "missed", "evidence at once · of later steps")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out := replay(t, name, all[name])
		t.Logf("%-34s %9d %5d %11d %6d  %s · %s", name, out.boundaries, out.torn, out.provisional, out.missed,
			strings.Join(slices.Sorted(maps.Keys(out.evidence)), ", "), strings.Join(slices.Sorted(maps.Keys(out.learned)), ", "))
	}
}
