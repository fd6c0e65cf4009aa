package checkpoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

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

// notePlain updates the state of the plain files of the directory.
func (u *Uploader) notePlain(tree plainTree) {
	u.mu.Lock()
	defer u.mu.Unlock()
	old := u.plain
	u.plain = make(map[string]*plainFile, len(tree.files))
	for _, f := range tree.files {
		p := old[f.Path]
		if p == nil {
			p = &plainFile{temporary: temporaryPath(f.Path)}
		}
		if p.now != f {
			p.now, p.since = f, time.Now()
		}
		u.plain[f.Path] = p
	}
	known := u.omitted
	u.omitted, u.empty = make(map[string]string, len(tree.omitted)), tree.empty
	for _, o := range tree.omitted {
		if u.omitted[o.Name] = o.Reason; known[o.Name] != o.Reason {
			logOmitted(u.log, []Omission{o}, nil)
		}
	}
	n := len(u.omitted)
	for _, p := range u.plain {
		if p.refused != "" {
			n++
		}
	}
	u.cfg.Metrics.omitted.WithLabelValues(u.cfg.Output).Set(float64(n))
}

// mirror sends plain files that were unchanged for the quiet period, or all if final is set. A
// file that is written meanwhile is sent up to its size when it was opened, and again later.
func (u *Uploader) mirror(ctx context.Context, final bool) error {
	u.mu.Lock()
	var due []*plainFile
	for _, p := range u.plain {
		if p.due(u.cfg.QuietPeriod, final) {
			due = append(due, p)
		}
	}
	u.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	slices.SortFunc(due, func(a, b *plainFile) int { return strings.Compare(a.now.Path, b.now.Path) })
	store := u.cfg.Store
	if u.cfg.Mode == ModeCheckpoint {
		store = store.Sub(filesDir)
	}
	if u.there == nil { // only the holder of the shipping token gets here
		there, err := mirrored(ctx, store)
		if err != nil {
			return err
		}
		u.there = there
		u.ledger = openLedger(u.root, ledgerName, store.Name())
	}
	u.openUploads()
	defer u.uploads.tidy(ctx)
	defer u.ledger.flush()
	later := u.namesakes(due)
	var unread error // guarded by u.mu
	now := slices.DeleteFunc(slices.Clone(due), func(p *plainFile) bool {
		_, ok := later[p.now.Path]
		return ok
	})
	err := forEach(ctx, parallel(store, 0), now, func(ctx context.Context, p *plainFile) error {
		err := u.mirrorFile(ctx, store, p, final)
		var ofStore *backends.Error
		if err == nil || errors.As(err, &ofStore) {
			return err
		}
		u.mu.Lock() // the error concerns this file alone
		defer u.mu.Unlock()
		unread = errors.Join(unread, err)
		return nil
	})
	if err == nil {
		err = u.mirrorNamesakes(ctx, store, due, later, final)
	}
	err = errors.Join(err, unread)
	// From here on, this process has newer information than the listing.
	for _, p := range due {
		delete(u.there, p.now.Path)
	}
	return err
}

// mirrorFile sends one file if the store does not have it.
func (u *Uploader) mirrorFile(ctx context.Context, store *backends.Store, p *plainFile, final bool) error {
	u.mu.Lock()
	f := p.now
	u.mu.Unlock()
	known, err := mirrors(ctx, store, u.root, u.ledger, f, u.there[f.Path])
	if err == nil && !known {
		opts := u.uploads.options(ctx, u.plainKey(f.Path))
		f, err = sendPlain(ctx, store, u.root, u.ledger, f, opts, !final, func(int64) {})
	}
	if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) && gone(u.root, f) {
		return nil // it is sent when it is closed, or never
	}
	reason, ok := refusal(err)
	if !ok {
		reason, ok = unreadable(err)
	}
	if ok {
		u.refuse(p, f, reason)
		return nil
	}
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uploads.done(u.plainKey(f.Path))
	if p.refused != "" {
		u.cfg.Metrics.omitted.WithLabelValues(u.cfg.Output).Dec()
	}
	p.sent, p.refused, p.refusedAs = f, "", plain{}
	if !known {
		u.cfg.Metrics.mirroredBytes.WithLabelValues(u.cfg.Output).Add(float64(f.Size))
		u.mirrored.Files++
		u.mirrored.Bytes += f.Size
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

// openPlain opens a regular file for reading. It follows a link only if it was one when it was
// listed, and never out of root.
func openPlain(root *os.Root, f plain) (*os.File, error) {
	p, flags := f.Path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW
	if f.Target != "" {
		p, flags = f.Target, os.O_RDONLY|unix.O_NONBLOCK
	}
	file, err := root.OpenFile(p, flags, 0)
	if err != nil {
		return nil, explain(root, p, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, file.Close(), &fs.PathError{Op: "open", Path: p, Err: errors.New("it is no longer a regular file")})
	}
	return file, nil
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
	busy, err := beingWritten(file)
	if closed && err == nil && busy {
		return f, errBusy
	}
	info, err := file.Stat()
	if err != nil {
		return f, err
	}
	f = f.as(info)
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
