package download

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// recordFile is the name of the record below disk.Private.
const recordFile = "prefetch.jsonl"

// record remembers which files prefetches wrote into a directory, so that a later run knows which
// files it need not fetch again and which it may replace. It is a log of lines. Each run begins
// with a line that names the source and the boot of the machine. A line follows for each published
// file, and at the end one that says that all files are on disk.
//
// Files are not synced one by one. So the lines of a run are valid for good only after the final
// sync. Before that they are valid until the next boot, because after a power failure a file may
// have its name and size but not its bytes. After such a failure, files that only look right are
// not trusted either.
//
// Losing the record costs time, or the permission to replace changed files, never correctness.
// Unreadable lines are skipped.
type record struct {
	dir     *disk.Dir
	source  string
	seed    maphash.Seed
	marks   []mark // sorted by path, latest first; see current
	lines   int    // number of lines about files, of all runs
	torn    bool   // the last line is incomplete
	suspect bool   // a power failure interrupted a run
	pending bool   // some files are valid only until the next boot
	// dirs are the contents of archives of this source, by the hash of the directory's path.
	dirs map[uint64]unpack.Contents

	mu   sync.Mutex // guards all below
	file *os.File   // nil until begin
	buf  []byte
}

// line is one line of the record; Source, Path or Synced determines its type.
type line struct {
	Source  string `json:"source,omitempty"`
	Boot    string `json:"boot,omitempty"`
	Path    string `json:"path,omitempty"`
	Size    int64  `json:"size,omitempty"`
	MTime   int64  `json:"mtime,omitempty"` // seconds, as some file systems keep no fraction
	Version string `json:"version,omitempty"`
	Synced  bool   `json:"synced,omitempty"`
	// Inode and Changed identify the file, if the file system supports them: Changed is the change
	// time in nanoseconds.
	Inode   uint64 `json:"ino,omitempty"`
	Changed int64  `json:"ctime,omitempty"`
	// Unpacked is set for the directory of an archive. MTime is then the time of the directory and
	// of every file in it, in nanoseconds, as precise as the file system keeps it. Size and Version
	// are those of the archive.
	Unpacked *unpack.Contents `json:"unpacked,omitempty"`
}

// mark is a line about a file in compact form: hashes with a secret seed.
type mark struct {
	path    uint64 // source and path
	file    uint64 // size and time, and the inode if known
	version uint64 // 0: lost, matches none
	changed uint32 // change time; 0: unknown, as is the inode
	line    uint32
}

// mostLine is the maximum length of a line: more than any path needs.
const mostLine = 1 << 20

// openRecord reads the record of the directory, if there is one. Anything at its path that is not a
// file written only by stager is ignored.
func openRecord(directory *disk.Dir, source string) (*record, error) {
	r := &record{dir: directory, source: source, seed: maphash.MakeSeed(), dirs: make(map[uint64]unpack.Contents)}
	if err := r.load(); err != nil {
		return nil, err
	}
	if r.lines > 2*len(r.marks)+1000 {
		return r, r.compact()
	}
	return r, nil
}

func (r *record) load() error {
	file, err := disk.OpenFile(r.dir.Private(), recordFile, os.O_RDONLY, 0)
	var odd *disk.NotRegularError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &odd) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() // opened for reading
	if info, err := file.Stat(); err == nil {
		r.marks = make([]mark, 0, allocated(info)/shortLine)
	}
	var source, boot string
	unsynced, open := 0, false // the first mark that is not synced, and whether a run is not synced
	lose := func() {
		if open && boot != disk.Boot() {
			for i := range r.marks[unsynced:] {
				r.marks[unsynced+i].version = 0
			}
			unsynced, r.suspect = len(r.marks), true
		}
	}
	err = eachLine(file, func(raw []byte, whole bool) error {
		r.torn = !whole
		if l, ok := plainLine(raw); ok {
			r.marks = append(r.marks, r.markOf(source, l))
			r.lines++
			return nil
		}
		var l line
		if json.Unmarshal(raw, &l) != nil {
			return nil
		}
		switch {
		case l.Source != "":
			lose()
			source, boot, open = l.Source, l.Boot, true
		case l.Path != "":
			m := r.markOf(source, fileLine{[]byte(l.Path), []byte(l.Version), l.Size, l.MTime, l.Changed, l.Inode})
			if l.Unpacked != nil {
				m.file, m.version = r.fileHash(dirSize, l.MTime, 0), r.hash("archive", l.archive())
				m.changed = r.changedHash(int64(l.Inode))
				if source == r.source {
					r.dirs[m.path] = *l.Unpacked
				}
			}
			r.marks = append(r.marks, m)
			r.lines++
		case l.Synced:
			unsynced, open = len(r.marks), false
		}
		return nil
	})
	lose()
	r.pending = unsynced < len(r.marks)
	slices.SortFunc(r.marks, func(a, b mark) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(b.line, a.line))
	})
	if r.marks = current(r.marks); len(r.marks) < cap(r.marks)/2 { // others may have written what is no line
		r.marks = slices.Clone(r.marks)
	}
	return err
}

// markOf returns the compact form of the next line about a file.
func (r *record) markOf(source string, l fileLine) mark {
	return mark{r.hashBytes(source, l.path), r.fileHash(l.size, l.mtime, l.inode), r.hashBytes("version", l.version), r.changedHash(l.changed), uint32(r.lines)}
}

// shortLine is the length of a short line about a file.
const shortLine = 128

// allocated returns how many bytes of the disk a file takes: others may have made it sparse.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), st.Blocks*512)
	}
	return 0
}

// current keeps the latest line for each path. If that is lost, it also keeps the latest valid one:
// the power failure may have taken the new file's name, so the file that it was to replace is there.
func current(sorted []mark) []mark {
	kept := sorted[:0]
	path, valid := uint64(0), false // of the last mark kept
	for _, m := range sorted {
		if m.path != path || !valid && m.version != 0 {
			kept, path, valid = append(kept, m), m.path, m.version != 0
		}
	}
	return kept
}

// eachLine calls f with each line, except those longer than mostLine; whole reports whether the
// line was terminated.
func eachLine(from io.Reader, f func(raw []byte, whole bool) error) error {
	in := bufio.NewReaderSize(from, 64<<10)
	var long []byte
	tooLong := false
	for {
		raw, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if tooLong = tooLong || len(long)+len(raw) > mostLine; !tooLong {
				long = append(long, raw...)
			}
			continue
		}
		text, whole := bytes.CutSuffix(raw, []byte("\n"))
		switch {
		case tooLong:
			text = nil
		case len(long) > 0:
			text = append(long, text...)
		}
		if read := len(raw) > 0 || len(long) > 0 || tooLong; read {
			if err := f(text, whole); err != nil {
				return err
			}
		}
		long, tooLong = long[:0], false
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *record) hash(space, s string) uint64 {
	h := r.hashIn(space)
	_, _ = h.WriteString(s) // never fails
	return max(h.Sum64(), 1)
}

func (r *record) hashBytes(space string, b []byte) uint64 {
	h := r.hashIn(space)
	_, _ = h.Write(b) // never fails
	return max(h.Sum64(), 1)
}

func (r *record) hashIn(space string) (h maphash.Hash) {
	h.SetSeed(r.seed)
	_, _ = h.WriteString(space) // never fails
	_ = h.WriteByte(0)          // never fails
	return h
}

// fileHash returns the hash of a file; ino is 0 if unknown.
func (r *record) fileHash(size, mtime int64, ino uint64) uint64 {
	return maphash.Comparable(r.seed, [3]int64{size, mtime, int64(ino)})
}

// changedHash returns the hash of a change time. It is 0 only for an unknown time.
func (r *record) changedHash(at int64) uint32 {
	if at == 0 {
		return 0
	}
	return max(uint32(maphash.Comparable(r.seed, at)), 1)
}

// standing is the relation of a local file to the object for its path.
type standing int

const (
	warm    standing = iota // it is the object and need not be fetched
	alike                   // it has the object's size, and its time if that is known, but no run is known to have written it
	touched                 // like alike, but a run wrote it, or another file in its place, and it was changed since
	ours                    // an earlier run wrote it, and the source has changed since
	foreign                 // its origin is unknown
)

// judge compares a local file with the object for its path.
func (r *record) judge(obj backends.Object, now disk.State) standing {
	same := now.Size == obj.Size && !obj.ModTime.IsZero() && now.ModTime.Unix() == obj.ModTime.Unix()
	marks := r.find(obj.Key)
	for _, m := range marks {
		if !r.wrote(m, now) {
			continue
		}
		// If the store has neither versions nor times, only the size can be compared.
		current := (obj.Version != "" || obj.ModTime.IsZero() || same) &&
			now.Size == obj.Size && m.version == r.hash("version", string(obj.Version))
		switch {
		case !current:
			return ours
		case m.changed != 0 && m.changed != r.changedHash(now.Changed):
			return touched // its mode was changed, or its contents with the time restored
		}
		return warm
	}
	// A power failure may remove the last bytes of a file, but keep its name and time.
	cut := r.suspect && now.Mode.IsRegular() && now.Size < obj.Size && !obj.ModTime.IsZero() && now.ModTime.Unix() == obj.ModTime.Unix()
	switch {
	case cut:
		return ours
	case now.Size == obj.Size && obj.ModTime.IsZero():
		return alike
	case !same:
		return foreign
	case r.suspect:
		return ours
	case len(marks) > 0:
		return touched
	}
	return alike
}

// wrote reports whether a line describes this file, judging by size, time and inode. Lines of
// earlier releases have no inode.
func (r *record) wrote(m mark, now disk.State) bool {
	ino := now.Inode
	if m.changed == 0 {
		ino = 0
	}
	return now.Mode.IsRegular() && m.file == r.fileHash(now.Size, now.ModTime.Unix(), ino)
}

// find returns the lines about a path of this source that may describe the file there, latest first;
// see current.
func (r *record) find(path string) []mark {
	hash := r.hash(r.source, path)
	first, _ := slices.BinarySearchFunc(r.marks, hash, func(m mark, path uint64) int { return cmp.Compare(m.path, path) })
	end := first
	for end < len(r.marks) && r.marks[end].path == hash {
		end++
	}
	return r.marks[first:end]
}

// begin writes the first line of this run and makes it durable: from here on files may appear that
// are not durable yet.
func (r *record) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	file, err := disk.OpenOwn(r.dir.Private(), recordFile, os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	r.file = file
	if r.torn {
		if _, err := file.WriteString("\n"); err != nil {
			return err
		}
	}
	if err := r.writeLocked(line{Source: r.source, Boot: disk.Boot()}); err != nil {
		return err
	}
	r.pending = true
	if err := file.Sync(); err != nil {
		return err
	}
	// The name of the record, and that of its directory: without them, the next run would take the
	// files of this one for another program's.
	for _, root := range []*os.Root{r.dir.Private(), r.dir.Root()} {
		dir, err := disk.OpenDir(root)
		if err != nil {
			return err
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

// add records a published file with its current state.
func (r *record) add(obj backends.Object, mtime time.Time, now disk.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(line{
		Path: obj.Key, Size: obj.Size, MTime: mtime.Unix(), Version: string(obj.Version), Inode: now.Inode, Changed: now.Changed,
	})
}

// synced records that all files so far are durable.
func (r *record) synced() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.writeLocked(line{Synced: true}); err != nil {
		return err
	}
	r.pending = false
	return r.file.Sync()
}

// writeLocked appends a line in a single write, so that a kill leaves at most one incomplete line.
func (r *record) writeLocked(l line) error {
	buf := bytes.NewBuffer(r.buf[:0])
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return err
	}
	r.buf = buf.Bytes()
	_, err := r.file.Write(r.buf)
	return err
}

func (r *record) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// compact removes the lines of files that have newer lines.
func (r *record) compact() error {
	from, err := disk.OpenFile(r.dir.Private(), recordFile, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer from.Close() // opened for reading
	to, err := disk.Replacement(r.dir.Private(), recordFile, 0o644)
	if err != nil {
		return err
	}
	latest := make([]bool, r.lines)
	for _, m := range r.marks {
		latest[m.line] = true
	}
	out := bufio.NewWriterSize(to, 64<<10)
	n := 0
	err = eachLine(from, func(raw []byte, _ bool) error {
		var l line
		if json.Unmarshal(raw, &l) != nil {
			return nil
		}
		if l.Source == "" && l.Path != "" {
			n++
			if n > len(latest) || !latest[n-1] {
				return nil
			}
		}
		_, err := out.Write(append(raw, '\n'))
		return err
	})
	if err = errors.Join(err, out.Flush()); err == nil {
		err = errors.Join(to.Sync(), to.Commit())
	}
	r.torn = r.torn && err != nil
	return errors.Join(err, to.Close())
}
