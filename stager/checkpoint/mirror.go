package checkpoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

// plainFiles mirrors the plain files of an output directory.
type plainFiles struct {
	cfg  *Config
	log  *slog.Logger
	root *os.Root

	// The holder of Uploader.shipping uses these. It opens them when it first needs them.
	there   map[string]backends.Object // that the store has and this process has not sent
	ledger  *ledger
	uploads *uploadLog

	mu      sync.Mutex            // guards all below, and every plainFile; a leaf
	files   map[string]*plainFile // by path
	omitted map[string]string     // why entries of the directory are not mirrored, by path
	empty   []Omission            // entries of the directory without content to mirror
	sent    Mirrored              // by this process
}

// plainFile is a file that is mirrored.
type plainFile struct {
	now       plain
	since     time.Time // when it was first seen in this state
	sent      plain     // the state that the store has
	temporary bool      // programs rename such files when they are written
	refused   string    // why the store rejects its name; empty when it does not
	refusedAs plain     // the state that was refused
}

// temporarySettle multiplies the quiet period of files with temporary names. Most of them are
// renamed soon, and a mirror deletes nothing.
const temporarySettle = 6

// due reports whether the file is to be sent now.
func (p *plainFile) due(settle time.Duration, final bool) bool {
	if p.sent == p.now {
		return false
	}
	if p.temporary {
		settle *= temporarySettle
	}
	return final || p.refusedAs != p.now && time.Since(p.since) >= settle
}

// note updates the state of the plain files of the directory.
func (m *plainFiles) note(tree plainTree) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.files
	m.files = make(map[string]*plainFile, len(tree.files))
	for _, f := range tree.files {
		p := old[f.Path]
		if p == nil {
			p = &plainFile{temporary: temporaryPath(f.Path)}
		}
		if p.now != f {
			p.now, p.since = f, time.Now()
		}
		m.files[f.Path] = p
	}
	known := m.omitted
	m.omitted, m.empty = make(map[string]string, len(tree.omitted)), tree.empty
	for _, o := range tree.omitted {
		if m.omitted[o.Name] = o.Reason; known[o.Name] != o.Reason {
			logOmitted(m.log, []Omission{o}, nil)
		}
	}
	n := len(m.omitted)
	for _, p := range m.files {
		if p.refused != "" {
			n++
		}
	}
	m.cfg.Metrics.omitted.WithLabelValues(m.cfg.Output).Set(float64(n))
}

// mirror sends plain files that were unchanged for the quiet period, or all if final is set. A
// file that is written meanwhile is sent up to its size when it was opened, and again later. The
// caller must hold the shipping token.
func (m *plainFiles) mirror(ctx context.Context, final bool) error {
	m.mu.Lock()
	var due []*plainFile
	for _, p := range m.files {
		if p.due(m.cfg.QuietPeriod, final) {
			due = append(due, p)
		}
	}
	m.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	slices.SortFunc(due, func(a, b *plainFile) int { return strings.Compare(a.now.Path, b.now.Path) })
	store := m.cfg.Store
	if m.cfg.Mode == ModeCheckpoint {
		store = store.Sub(filesDir)
	}
	if m.there == nil {
		there, err := mirrored(ctx, store)
		if err != nil {
			return err
		}
		m.there = there
		m.ledger = openLedger(m.root, ledgerName, store.Name())
	}
	m.openUploads()
	defer m.uploads.tidy(ctx)
	defer m.ledger.flush()
	later := m.namesakes(due)
	var unread error // guarded by mu
	now := slices.DeleteFunc(slices.Clone(due), func(p *plainFile) bool {
		_, ok := later[p.now.Path]
		return ok
	})
	err := forEach(ctx, parallel(store, 0), now, func(ctx context.Context, p *plainFile) error {
		err := m.mirrorFile(ctx, store, p, final)
		var ofStore *backends.Error
		if err == nil || errors.As(err, &ofStore) {
			return err
		}
		m.mu.Lock() // the error concerns this file alone
		defer m.mu.Unlock()
		unread = errors.Join(unread, err)
		return nil
	})
	if err == nil {
		err = m.mirrorNamesakes(ctx, store, due, later, final)
	}
	err = errors.Join(err, unread)
	// From here on, this process has newer information than the listing.
	for _, p := range due {
		delete(m.there, p.now.Path)
	}
	return err
}

// mirrorFile sends one file if the store does not have it.
func (m *plainFiles) mirrorFile(ctx context.Context, store *backends.Store, p *plainFile, final bool) error {
	m.mu.Lock()
	f := p.now
	m.mu.Unlock()
	known, err := mirrors(ctx, store, m.root, m.ledger, f, m.there[f.Path])
	if err == nil && !known {
		opts := m.uploads.options(ctx, m.key(f.Path))
		f, err = sendPlain(ctx, store, m.root, m.ledger, f, opts, !final, func(int64) {})
	}
	if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) && gone(m.root, f) {
		return nil // it is sent when it is closed, or never
	}
	reason, ok := refusal(err)
	if !ok {
		reason, ok = unreadable(err)
	}
	if ok {
		m.refuse(p, f, reason)
		return nil
	}
	if err != nil {
		return err
	}
	m.uploads.done(m.key(f.Path))
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.refused != "" {
		m.cfg.Metrics.omitted.WithLabelValues(m.cfg.Output).Dec()
	}
	p.sent, p.refused, p.refusedAs = f, "", plain{}
	if !known {
		m.cfg.Metrics.mirroredBytes.WithLabelValues(m.cfg.Output).Add(float64(f.Size))
		m.sent.Files++
		m.sent.Bytes += f.Size
	}
	return nil
}

// ledgerName is the ledger of what was mirrored.
const ledgerName = private + "/mirrored"

// gone reports whether a file, or the target of a link, was removed.
func gone(root *os.Root, f plain) bool {
	_, err := root.Lstat(f.Path)
	if err == nil && f.Target != "" {
		_, err = root.Stat(f.Target)
	}
	return errors.Is(err, fs.ErrNotExist)
}

// mirrored lists the objects of a mirror in the store.
func mirrored(ctx context.Context, store *backends.Store) (map[string]backends.Object, error) {
	there := make(map[string]backends.Object)
	for obj, err := range store.List(ctx, "") {
		if backends.Empty(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		there[obj.Key] = obj
	}
	return there, nil
}

var errBusy = errors.New("it is open for writing")

// openPlain opens what has the name of f for reading. It follows a link only if it was one when it was
// listed, and never out of root.
func openPlain(root *os.Root, f plain) (*os.File, error) {
	p, flags := f.Path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW
	if f.Target != "" {
		p, flags = f.Target, os.O_RDONLY|unix.O_NONBLOCK
	}
	file, err := root.OpenFile(p, flags, 0)
	return file, explain(root, p, err)
}

// now returns the state of f, which was opened. It must be a regular file.
func (f plain) now(file *os.File) (plain, error) {
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Path, Err: errors.New("it is no longer a regular file")}
	}
	if err != nil {
		return f, err
	}
	return f.as(info), nil
}

// sendPlain sends one file in its current state, and returns that state. If closed is set, it
// returns errBusy for a file that is open for writing. It calls moved with the number of bytes as
// they are read, in total the size of the file. The ledger records a file only if it did not
// change meanwhile.
func sendPlain(ctx context.Context, store *backends.Store, root *os.Root, l *ledger, f plain, opts backends.CreateOptions, closed bool, moved func(int64)) (plain, error) {
	file, err := openPlain(root, f)
	if err != nil {
		return f, err
	}
	defer file.Close() // opened for reading
	// This comes before the size is read: a writer that closed the file in between would go unnoticed,
	// and its last bytes unsent.
	writing, blind := beingWritten(file)
	busy := writing && blind == nil
	if f, err = f.now(file); err != nil {
		return f, err
	}
	if closed && busy {
		return f, errBusy
	}
	src := &countingFile{file: file, moved: moved}
	src.left.Store(f.Size)
	obj, err := store.Put(ctx, f.Path, src, f.Size, opts)
	if err != nil {
		return f, err
	}
	moved(src.left.Load())
	if info, err := file.Stat(); err == nil && !busy && f.as(info) == f {
		l.note(f, obj.Version)
	}
	return f, nil
}

// countingFile reports the bytes of a file as they are sent, or read to be sent. Retried bytes
// are reported twice, but the total never exceeds the size of the file.
type countingFile struct {
	file  *os.File
	left  atomic.Int64 // bytes not yet reported
	moved func(int64)
}

var (
	_ backends.Counting = (*countingFile)(nil)
	_ backends.InFile   = (*countingFile)(nil)
)

// ReadAt implements io.ReaderAt.
func (t *countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := t.file.ReadAt(p, off)
	t.Sent(off, n)
	return n, err
}

// Uncounted implements backends.Counting.
func (t *countingFile) Uncounted() io.ReaderAt { return t.file }

// File implements backends.InFile.
func (t *countingFile) File() *os.File { return t.file }

// Sent implements backends.InFile.
func (t *countingFile) Sent(_ int64, n int) {
	for {
		left := t.left.Load()
		take := min(int64(n), left)
		if t.left.CompareAndSwap(left, left-take) {
			t.moved(take)
			return
		}
	}
}

func pathsOf(files []local) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, f := range files {
			if !yield(f.Path) {
				return
			}
		}
	}
}
