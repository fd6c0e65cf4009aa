package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// PushConfig configures Push.
type PushConfig struct {
	Store    *backends.Store
	Path     string                  // a directory, whose files go below Store, or a file, which keeps its name
	Parallel int                     // files at once; 0: the store's default
	Progress func(done, total int64) // receives byte counts, never concurrently; may be nil
	// Memory is a directory for a hint of what was sent. The next Push of the same files then
	// need not read them. Empty: no hint.
	Memory string
	Log    *slog.Logger // logs what is not saved; nil: silent
}

// PushSummary reports what Push did.
type PushSummary struct {
	Files     int   `json:"files"` // sent
	Bytes     int64 `json:"bytes"`
	Unchanged int   `json:"unchanged"` // already in the store
	// NotSaved lists what is not in the store, like *OmittedError. Empty lists entries without
	// content, of which there is nothing to save.
	NotSaved []Omission `json:"notSaved,omitempty"`
	Empty    []Omission `json:"empty,omitempty"`
}

// Push mirrors a file or a directory to a store. It does not send files that the store already
// has: files that an earlier Push sent in the same state (size, times, inode), as recorded in
// Memory, and files with the same checksum. It removes nothing from the store.
//
// Push saves regular files of any name. It saves symbolic links to files within the directory as
// files. A file may be impossible to save: the store cannot have such a name, the store keeps it
// and another file under one name, or the file vanished. All other files are still saved, and the
// error is an *OmittedError.
func Push(ctx context.Context, cfg PushConfig) (PushSummary, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	root, tree, err := openPush(cfg.Path)
	if err != nil {
		return PushSummary{}, err
	}
	defer root.Close() // opened for reading
	p := &pusher{cfg: cfg, root: root}
	p.summary.NotSaved, p.summary.Empty = tree.omitted, tree.empty
	files := p.nameable(tree.files)
	if p.there, err = mirroredOf(ctx, cfg.Store, files); err != nil {
		return p.summary, err
	}
	p.memory = cfg.remember()
	defer p.memory.close()
	p.progress = newProgress(cfg.Progress, sizeOf(files))
	err = errors.Join(p.sendAll(ctx, files), context.Cause(ctx))
	slices.SortFunc(p.summary.NotSaved, func(a, b Omission) int { return strings.Compare(a.Name, b.Name) })
	logOmitted(cfg.Log, p.summary.NotSaved, p.summary.Empty)
	if err == nil && p.refusedAll() {
		err = p.refusal // the destination is at fault, not the names
	}
	if err == nil {
		err = omittedErr(p.summary.NotSaved)
	}
	return p.summary, err
}

// pusher is the state of one Push.
type pusher struct {
	cfg      PushConfig
	root     *os.Root
	there    map[string]backends.Object
	memory   *ledger
	progress *progress

	mu      sync.Mutex // guards the fields below
	summary PushSummary
	refusal error // the first refusal by the store, or the first unreadable file
	refused int   // number of such files
}

// nameable removes files whose names the store's protocol does not allow.
func (p *pusher) nameable(files []plain) []plain {
	return slices.DeleteFunc(files, func(f plain) bool {
		err := p.cfg.Store.CheckKey(f.Path)
		reason, ok := refusal(err)
		if ok {
			p.omit(f.Path, reason)
		}
		return ok
	})
}

func (p *pusher) omit(name, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.summary.NotSaved = append(p.summary.NotSaved, Omission{name, reason})
}

// sendAll sends the files. Files whose names may collide in the store go last.
func (p *pusher) sendAll(ctx context.Context, files []plain) error {
	later := p.namesakes(files)
	var last []plain
	files = slices.DeleteFunc(slices.Clone(files), func(f plain) bool {
		_, ok := later[f.Path]
		if ok {
			last = append(last, f)
		}
		return ok
	})
	if err := forEach(ctx, parallel(p.cfg.Store, p.cfg.Parallel), files, p.send); err != nil {
		return err
	}
	for _, f := range last {
		taken, err := p.cfg.Store.Taken(ctx, f.Path)
		switch {
		case err != nil:
			return err
		case taken:
			p.omit(f.Path, oneName(later[f.Path]))
		default:
			if err := p.send(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// forEach calls do for all items, in order, from a fixed number of workers. It stops at the first
// error. Workers live as long as there are items: one goroutine per small file would grow its
// stack each time, which took a tenth of the time of a push.
func forEach[T any](ctx context.Context, workers int, items []T, do func(context.Context, T) error) error {
	g, gctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(workers, len(items)) {
		g.Go(func() error {
			for gctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(items)) {
					return nil
				}
				if err := do(gctx, items[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// namesakes returns the files that the store may keep as one object with an earlier file, each
// with the name of that file. A file that the store has under exactly this name is not included.
func (p *pusher) namesakes(files []plain) map[string]string {
	inOrder := make([]string, 0, len(files))
	for _, there := range []bool{true, false} {
		for _, f := range files {
			if (p.there[f.Path].Key != "") == there {
				inOrder = append(inOrder, f.Path)
			}
		}
	}
	later := backends.Namesakes(slices.Values(inOrder))
	for key := range p.there {
		delete(later, key)
	}
	return later
}

// maxRefused is the number of refused files after which Push gives up if none has succeeded.
const maxRefused = 100

// send sends one file unless the store already has it.
func (p *pusher) send(ctx context.Context, f plain) error {
	known, err := mirrors(ctx, p.cfg.Store, p.root, p.memory, f, p.there[f.Path])
	if err == nil && !known {
		_, err = sendPlain(ctx, p.cfg.Store, p.root, p.memory, f, backends.CreateOptions{}, false, p.progress.add)
	}
	if errors.Is(err, fs.ErrNotExist) && gone(p.root, f) {
		p.omit(f.Path, "it was removed since the directory was listed")
		return nil
	}
	reason, ok := refusal(err)
	if !ok {
		reason, ok = unreadable(err)
	}
	if ok {
		p.omit(f.Path, reason)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.refused++; p.refusal == nil {
			p.refusal = err
		}
		if p.refused >= maxRefused && p.summary.Files+p.summary.Unchanged == 0 {
			return p.refusal
		}
		return nil
	}
	if err != nil {
		return err
	}
	if known {
		p.progress.add(f.Size)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known {
		p.summary.Unchanged++
	} else {
		p.summary.Files, p.summary.Bytes = p.summary.Files+1, p.summary.Bytes+f.Size
	}
	return nil
}

// refusedAll reports whether at least one file was refused and none succeeded. The cause is then
// the destination rather than the names.
func (p *pusher) refusedAll() bool {
	return p.refused > 0 && p.summary.Files+p.summary.Unchanged == 0
}

func sizeOf(files []plain) (n int64) {
	for _, f := range files {
		n += f.Size
	}
	return n
}

// remember opens the hint of what was sent from this path to this store.
func (cfg PushConfig) remember() *ledger {
	from, err := filepath.Abs(cfg.Path)
	if cfg.Memory == "" || err != nil || os.MkdirAll(cfg.Memory, 0o700) != nil {
		return nil
	}
	root, err := os.OpenRoot(cfg.Memory)
	if err != nil {
		return nil
	}
	defer root.Close() // the ledger has its own handle
	sum := sha256.Sum256([]byte(from + "\x00" + cfg.Store.Name()))
	return openLedger(root, "pushed-"+hex.EncodeToString(sum[:16]), cfg.Store.Name())
}

// mirroredOf returns the objects that the store has for the files, by path.
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

func openPush(path string) (*os.Root, plainTree, error) {
	root, only, err := openPath(path)
	if err != nil {
		return nil, plainTree{}, err
	}
	var tree plainTree
	if only == "" {
		tree, err = plainWalk(root, true, func(string) bool { return false })
	} else {
		tree, err = onlyFile(root, only)
	}
	if err != nil {
		return nil, plainTree{}, errors.Join(err, root.Close())
	}
	return root, tree, nil
}

// onlyFile returns the tree of a single file of a directory.
func onlyFile(root *os.Root, name string) (plainTree, error) {
	w := plainWalker{root: root, skip: func(string) bool { return false }}
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return plainTree{}, err
	case info.Mode().Type() == fs.ModeSymlink:
		w.link(name)
	default:
		w.files = []plain{describePlain(name, info)}
	}
	return w.plainTree, nil
}
