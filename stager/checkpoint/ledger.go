package checkpoint

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// plain is a mirrored file and its state. Unlike the state of a checkpoint's file, it includes
// the change time: a file that was renamed, or whose times were set back, is a different one.
type plain struct {
	local
	CTime int64 `json:"ctime"` // nanoseconds
	// Target is the target of a symbolic link at Path; empty for a regular file.
	Target string `json:"target,omitempty"`
}

// as returns f with the state from info.
func (f plain) as(info os.FileInfo) plain {
	now := describePlain(f.Path, info)
	now.Target = f.Target
	return now
}

func describePlain(p string, info os.FileInfo) plain {
	f := plain{local: describe(p, info)}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.CTime = sys.Changed(st).UnixNano()
	}
	return f
}

// A ledger records, across processes, which state of each file a mirror sent, and which version
// of the object resulted. Times of the store cannot be compared with times of files, because a
// renamed file keeps its old time. A ledger is a hint: files that it does not list are compared
// by checksum or sent again. A nil ledger records nothing.
type ledger struct {
	mu   sync.Mutex           // guards all below
	sent map[string]sentPlain // recorded by earlier processes and not by this one
	file *os.File             // lines are appended; nil when it cannot be written
	text []byte               // lines not yet written to the file
}

// ledgerBuffer is how many bytes of lines are buffered before a write, so that small files do not
// cost one system call each.
const ledgerBuffer = 32 << 10

type sentPlain struct {
	plain
	Version backends.Version `json:"version"`
}

// openLedger reads the ledger at name, for the given store. It ignores a line that was cut off by
// a kill. It compacts the file when most of its lines are outdated.
func openLedger(root *os.Root, name, store string) *ledger {
	l := &ledger{sent: make(map[string]sentPlain)}
	file, err := disk.OpenOwn(root, name, os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return l
	}
	l.file = file
	lines, n := bufio.NewScanner(file), 0
	lines.Buffer(nil, 1<<20)
	valid := lines.Scan() && lines.Text() == headOf(store)
	for valid && lines.Scan() {
		var s sentPlain
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Path != "" {
			l.sent[s.Path] = s
		} else {
			n = len(l.sent) + 1<<10 // force a rewrite, so that nothing is appended to a torn line
		}
		n++
	}
	if !valid || n > 2*len(l.sent)+1<<9 {
		l.rewrite(root, name, store)
	}
	return l
}

func headOf(store string) string {
	text, _ := json.Marshal(struct { // it has no value that cannot be encoded
		Store string `json:"store"`
	}{store})
	return string(text)
}

// rewrite replaces the file with the current entries.
func (l *ledger) rewrite(root *os.Root, name, store string) {
	text := []byte(headOf(store) + "\n")
	for _, p := range slices.Sorted(maps.Keys(l.sent)) {
		if line, err := json.Marshal(l.sent[p]); err == nil {
			text = append(append(text, line...), '\n')
		}
	}
	err := disk.ReplaceSmall(root, name, text, 0o600, false)
	_ = l.file.Close() // it was read
	if l.file = nil; err != nil {
		return // only a hint is lost
	}
	if file, err := disk.OpenFile(root, name, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		l.file = file
	}
}

// has reports whether object there was sent from file f in this exact state.
func (l *ledger) has(f plain, there backends.Object) bool {
	if l == nil || there.Version == "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.sent[f.Path]
	return ok && s.plain == f && s.Version == there.Version
}

// note records for later processes that version was sent from file f.
func (l *ledger) note(f plain, version backends.Version) {
	if l == nil || version == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sent, f.Path)
	if line, err := json.Marshal(sentPlain{f, version}); err == nil && l.file != nil {
		if l.text = append(append(l.text, line...), '\n'); len(l.text) >= ledgerBuffer {
			l.flushLocked()
		}
	}
}

func (l *ledger) flushLocked() {
	if l.file != nil && len(l.text) > 0 {
		_, _ = l.file.Write(l.text) // a hint
	}
	l.text = l.text[:0]
}

// flush writes the buffered lines to the file.
func (l *ledger) flush() {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.flushLocked()
	}
}

func (l *ledger) close() {
	if l.flush(); l != nil && l.file != nil {
		_ = l.file.Close() // a hint
	}
}

// mirrors reports whether object there has the bytes of file f. It consults the ledger first.
// Otherwise, if the store has a checksum, it reads the file and compares.
func mirrors(ctx context.Context, store *backends.Store, root *os.Root, l *ledger, f plain, there backends.Object) (bool, error) {
	if there.Key == "" || there.Size != f.Size {
		return false, nil
	}
	if l.has(f, there) {
		return true, nil
	}
	if there.Sum.IsZero() && store.Capabilities().Checksum != "" {
		obj, err := store.Stat(ctx, f.Path)
		if backends.KindOf(err) == backends.NotExist {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		there = obj
	}
	if there.Sum.IsZero() || there.Size != f.Size {
		return false, nil
	}
	file, err := openPlain(root, f)
	if err != nil {
		return false, err
	}
	defer file.Close() // opened for reading
	if now, err := f.now(file); err != nil || now != f {
		return false, err
	}
	h := there.Sum.Algorithm.New()
	if _, err := io.Copy(h, &obedient{ctx, io.NewSectionReader(file, 0, f.Size)}); err != nil {
		return false, err
	}
	info, err := file.Stat()
	if err != nil || f.as(info) != f || backends.SumOf(there.Sum.Algorithm, h) != there.Sum {
		return false, err
	}
	l.note(f, there.Version)
	return true, nil
}
