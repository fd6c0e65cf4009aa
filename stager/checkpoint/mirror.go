package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

// plainFile is a file that is mirrored.
type plainFile struct {
	now   plain
	since time.Time // when it was first seen in this state
	sent  plain     // the state that the store has
}

// notePlain takes account of the plain files of the folder.
func (u *Uploader) notePlain(files []plain) {
	u.mu.Lock()
	defer u.mu.Unlock()
	old := u.plain
	u.plain = make(map[string]*plainFile, len(files))
	for _, f := range files {
		p := old[f.Path]
		if p == nil {
			p = new(plainFile)
		}
		if p.now != f {
			p.now, p.since = f, time.Now()
		}
		u.plain[f.Path] = p
	}
}

// mirror sends plain files that have settled, or all with final. A file that is
// written to meanwhile is sent as far as it was when it was opened, and again later.
func (u *Uploader) mirror(ctx context.Context, final bool) error {
	u.mu.Lock()
	var due []*plainFile
	for _, p := range u.plain {
		if p.sent != p.now && (final || time.Since(p.since) >= u.cfg.Settle) {
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
	if u.there == nil { // only who holds the shipping token comes here
		there, err := mirrored(ctx, store)
		if err != nil {
			return err
		}
		u.there = there
		u.ledger = openLedger(u.root, ledgerName, store.Name())
	}
	var unread error // guarded by u.mu
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(store, 0))
	for _, p := range due {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := u.mirrorFile(gctx, store, p, final)
			var ofStore *backends.Error
			if err == nil || errors.As(err, &ofStore) {
				return err
			}
			u.mu.Lock() // it is of this file alone
			defer u.mu.Unlock()
			unread = errors.Join(unread, err)
			return nil
		})
	}
	err := errors.Join(g.Wait(), unread)
	// From now on this process knows better than the listing.
	for _, p := range due {
		delete(u.there, p.now.Path)
	}
	return err
}

// mirrorFile sends one file, if the store does not have it.
func (u *Uploader) mirrorFile(ctx context.Context, store *backends.Store, p *plainFile, final bool) error {
	u.mu.Lock()
	f := p.now
	u.mu.Unlock()
	known, err := mirrors(ctx, store, u.root, u.ledger, f, u.there[f.Path])
	if err == nil && !known {
		f, err = sendPlain(ctx, store, u.root, u.ledger, f, !final, func(int64) {})
	}
	if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) && gone(u.root, f.Path) {
		return nil // its turn comes when it is closed, or never
	}
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if p.sent = f; !known {
		u.cfg.Metrics.mirroredBytes.WithLabelValues(u.cfg.Output).Add(float64(f.Size))
		u.mirrored.Files++
		u.mirrored.Bytes += f.Size
	}
	return nil
}

// ledgerName is the hint of what was mirrored.
const ledgerName = private + "/mirrored"

func gone(root *os.Root, p string) bool {
	_, err := root.Lstat(p)
	return errors.Is(err, fs.ErrNotExist)
}

// mirrored lists what a mirror in the store holds.
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

// openPlain opens a file for reading, as long as it is a plain one.
func openPlain(root *os.Root, p string) (*os.File, error) {
	file, err := root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, file.Close(), &fs.PathError{Op: "open", Path: p, Err: errors.New("it is no plain file any more")})
	}
	return file, nil
}

// sendPlain sends one file as far as it is now, and returns the state that was sent.
// With closed it refuses one that somebody writes to. It tells moved of the bytes as
// they are read, of as many as the file has. The ledger notes a file only if it did not
// change meanwhile.
func sendPlain(ctx context.Context, store *backends.Store, root *os.Root, l *ledger, f plain, closed bool, moved func(int64)) (plain, error) {
	file, err := openPlain(root, f.Path)
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
	f = describePlain(f.Path, info)
	src := &told{file: file, moved: moved}
	src.left.Store(f.Size)
	obj, err := store.Put(ctx, f.Path, src, f.Size, backends.CreateOptions{})
	if err != nil {
		return f, err
	}
	moved(src.left.Load())
	if info, err := file.Stat(); err == nil && !busy && describePlain(f.Path, info) == f {
		l.note(f, obj.Version)
	}
	return f, nil
}

// told tells of the bytes of a file that are sent, or read to be sent. Those of which that
// is said twice, as sending them failed, bring forward what others would have told.
type told struct {
	file  *os.File
	left  atomic.Int64 // that nobody was told of
	moved func(int64)
}

var (
	_ backends.Counting = (*told)(nil)
	_ backends.InFile   = (*told)(nil)
)

// ReadAt implements io.ReaderAt.
func (t *told) ReadAt(p []byte, off int64) (int, error) {
	n, err := t.file.ReadAt(p, off)
	t.Sent(off, n)
	return n, err
}

// Uncounted implements backends.Counting.
func (t *told) Uncounted() io.ReaderAt { return t.file }

// File implements backends.InFile.
func (t *told) File() *os.File { return t.file }

// Sent implements backends.InFile.
func (t *told) Sent(_ int64, n int) {
	for {
		left := t.left.Load()
		take := min(int64(n), left)
		if t.left.CompareAndSwap(left, left-take) {
			t.moved(take)
			return
		}
	}
}

// PushConfig says what Push mirrors.
type PushConfig struct {
	Store    *backends.Store
	Path     string                  // a folder, whose files come below Store; or a file, which keeps its name
	Parallel int                     // files at once; 0: what the store likes
	Progress func(done, total int64) // told of bytes, one call at a time; may be nil
	// Memory is a directory for the hint of what was sent, which saves the next Push of the
	// same files a look at their bytes. Empty: there is none.
	Memory string
}

// PushSummary is what Push did.
type PushSummary struct {
	Files     int   `json:"files"` // sent
	Bytes     int64 `json:"bytes"`
	Unchanged int   `json:"unchanged"` // there already
}

// Push mirrors a file or a folder to a store. Files that the store has are not sent
// again: those that an earlier Push sent in the same state (size, times, inode), as
// Memory knows, and those of the same checksum. What the store has beyond them stays. Symbolic links, sockets and devices are left out, and so are
// files under temporary names.
func Push(ctx context.Context, cfg PushConfig) (PushSummary, error) {
	root, files, err := openPush(cfg.Path)
	if err != nil {
		return PushSummary{}, err
	}
	defer root.Close() // it is only read through
	if err := cfg.Store.CheckKeys(pathsOfPlain(files)); err != nil {
		return PushSummary{}, err
	}
	there, err := mirroredOf(ctx, cfg.Store, files)
	if err != nil {
		return PushSummary{}, err
	}
	memory := cfg.remember()
	defer memory.close()
	progress := newProgress(cfg.Progress, sizeOf(files))
	var mu sync.Mutex // guards summary
	var summary PushSummary
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(cfg.Store, cfg.Parallel))
	for _, f := range files {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			known, err := mirrors(gctx, cfg.Store, root, memory, f, there[f.Path])
			if err != nil {
				return err
			}
			if !known {
				if _, err := sendPlain(gctx, cfg.Store, root, memory, f, false, progress.add); err != nil {
					return err
				}
			} else {
				progress.add(f.Size)
			}
			mu.Lock()
			defer mu.Unlock()
			if known {
				summary.Unchanged++
			} else {
				summary.Files, summary.Bytes = summary.Files+1, summary.Bytes+f.Size
			}
			return nil
		})
	}
	return summary, errors.Join(g.Wait(), context.Cause(ctx))
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

func pathsOfPlain(files []plain) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, f := range files {
			if !yield(f.Path) {
				return
			}
		}
	}
}

func sizeOf(files []plain) (n int64) {
	for _, f := range files {
		n += f.Size
	}
	return n
}

// remember opens the hint of what was sent from this place to this store.
func (cfg PushConfig) remember() *ledger {
	from, err := filepath.Abs(cfg.Path)
	if cfg.Memory == "" || err != nil || os.MkdirAll(cfg.Memory, 0o700) != nil {
		return nil
	}
	root, err := os.OpenRoot(cfg.Memory)
	if err != nil {
		return nil
	}
	defer root.Close() // the ledger has a handle of its own
	sum := sha256.Sum256([]byte(from + "\x00" + cfg.Store.Name()))
	return openLedger(root, "pushed-"+hex.EncodeToString(sum[:16]), cfg.Store.Name())
}

// mirroredOf is what the store has of the files.
func mirroredOf(ctx context.Context, store *backends.Store, files []plain) (map[string]backends.Object, error) {
	if len(files) != 1 {
		return mirrored(ctx, store)
	}
	obj, err := store.Stat(ctx, files[0].Path)
	if backends.KindOf(err) == backends.NotExist {
		return nil, nil
	}
	return map[string]backends.Object{files[0].Path: obj}, err
}

func openPush(path string) (*os.Root, []plain, error) {
	root, only, err := openPath(path)
	if err != nil {
		return nil, nil, err
	}
	var files []plain
	if only == "" {
		files, err = plainFiles(root, func(string) bool { return false })
	} else {
		var info fs.FileInfo
		if info, err = root.Stat(only); err == nil {
			files = []plain{describePlain(only, info)}
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return root, files, nil
}
