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
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

// plainFile is a file that is mirrored.
type plainFile struct {
	now   local
	since time.Time // when it was first seen in this state
	sent  local     // the state that the store has
}

// plainRemote is a file as the store has mirrored it.
type plainRemote struct {
	size     int64
	modified time.Time
}

// has tells whether the store has the file already: the same size, and written no
// earlier than the file was.
func (r plainRemote) has(f local) bool {
	return r.size == f.Size && !r.modified.IsZero() && r.modified.UnixNano() >= f.MTime
}

// notePlain takes account of the plain files of the folder.
func (u *Uploader) notePlain(files []local) {
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
	}
	var unread error // guarded by u.mu
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(store, 0))
	for _, p := range due {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			u.mu.Lock()
			f := p.now
			u.mu.Unlock()
			was := u.there[f.Path]
			if !was.has(f) {
				sent, err := sendPlain(gctx, store, u.root, f, !final, func(int64) {})
				var ofStore *backends.Error
				switch {
				case errors.Is(err, errBusy), errors.Is(err, fs.ErrNotExist) && gone(u.root, f.Path):
					return nil // its turn comes when it is closed, or never
				case errors.As(err, &ofStore):
					return err
				case err != nil: // of this file alone
					u.mu.Lock()
					defer u.mu.Unlock()
					unread = errors.Join(unread, err)
					return nil
				}
				f = sent
				u.cfg.Metrics.mirroredBytes.WithLabelValues(u.cfg.Output).Add(float64(f.Size))
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			if p.sent = f; !was.has(f) {
				u.mirrored.Files++
				u.mirrored.Bytes += f.Size
			}
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

func gone(root *os.Root, p string) bool {
	_, err := root.Lstat(p)
	return errors.Is(err, fs.ErrNotExist)
}

// mirrored lists what a mirror in the store holds.
func mirrored(ctx context.Context, store *backends.Store) (map[string]plainRemote, error) {
	there := make(map[string]plainRemote)
	for obj, err := range store.List(ctx, "") {
		if backends.Empty(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		there[obj.Key] = plainRemote{obj.Size, obj.ModTime}
	}
	return there, nil
}

var errBusy = errors.New("it is open for writing")

// sendPlain sends one file as far as it is now, and returns the state that was sent.
// With closed it refuses one that somebody writes to. It tells moved of the bytes as
// they are read, of as many as the file has.
func sendPlain(ctx context.Context, store *backends.Store, root *os.Root, f local, closed bool, moved func(int64)) (local, error) {
	file, err := root.OpenFile(f.Path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return f, err
	}
	defer file.Close() // opened for reading
	if closed {
		if busy, err := beingWritten(file); err == nil && busy {
			return f, errBusy
		}
	}
	info, err := file.Stat()
	if err != nil {
		return f, err
	}
	f = describe(f.Path, info)
	src := &told{file: file, moved: moved}
	src.left.Store(f.Size)
	_, err = store.Put(ctx, f.Path, src, f.Size, backends.CreateOptions{})
	if err == nil {
		moved(src.left.Load())
	}
	return f, err
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
}

// PushSummary is what Push did.
type PushSummary struct {
	Files     int   `json:"files"` // sent
	Bytes     int64 `json:"bytes"`
	Unchanged int   `json:"unchanged"` // there already
}

// Push mirrors a file or a folder to a store. Files that the store has with the same
// size, written there no earlier than here, are not sent again; what the store has
// beyond them stays. Symbolic links, sockets and devices are left out, and so are
// files under temporary names.
func Push(ctx context.Context, cfg PushConfig) (PushSummary, error) {
	root, files, err := openPush(cfg.Path)
	if err != nil {
		return PushSummary{}, err
	}
	defer root.Close() // it is only read through
	if err := cfg.Store.CheckKeys(pathsOf(files)); err != nil {
		return PushSummary{}, err
	}
	there, err := mirroredOf(ctx, cfg.Store, files)
	if err != nil {
		return PushSummary{}, err
	}
	progress := newProgress(cfg.Progress, totalSize(files))
	var mu sync.Mutex // guards summary
	var summary PushSummary
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(cfg.Store, cfg.Parallel))
	for _, f := range files {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			known := there[f.Path].has(f)
			if !known {
				if _, err := sendPlain(gctx, cfg.Store, root, f, false, progress.add); err != nil {
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

// mirroredOf is what the store has of the files.
func mirroredOf(ctx context.Context, store *backends.Store, files []local) (map[string]plainRemote, error) {
	if len(files) != 1 {
		return mirrored(ctx, store)
	}
	obj, err := store.Stat(ctx, files[0].Path)
	if backends.KindOf(err) == backends.NotExist {
		return nil, nil
	}
	return map[string]plainRemote{files[0].Path: {obj.Size, obj.ModTime}}, err
}

func openPush(path string) (*os.Root, []local, error) {
	root, only, err := openPath(path)
	if err != nil {
		return nil, nil, err
	}
	var files []local
	if only == "" {
		files, err = plainFiles(root, func(string) bool { return false })
	} else {
		var info fs.FileInfo
		if info, err = root.Stat(only); err == nil {
			files = []local{describe(only, info)}
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return root, files, nil
}
