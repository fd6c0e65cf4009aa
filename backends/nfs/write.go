package nfs

import (
	"bytes"
	"context"
	"io"
	"path"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// Create implements backends.Sink. The writer buffers blocks in memory until they are full and the
// server has confirmed them.
func (s *share) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	u, err := s.begin(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	_, block := s.tree.Sizes()
	return &writer{upload: u, block: block}, nil
}

// CreateParts implements backends.PartCreator.
func (s *share) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	if opts.Size < 0 {
		return nil, backends.Errorf(backends.Invalid, "create", key, "the size of an object in parts must be known")
	}
	u, err := s.begin(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return &partWriter{upload: u, part: s.Capabilities().PartLength(opts.Size), have: make(map[int64]part)}, nil
}

// begin creates the temporary file and its directories.
func (s *share) begin(ctx context.Context, key string, opts backends.CreateOptions) (*upload, error) {
	if err := fileshare.Ended(ctx, "create", key); err != nil {
		return nil, err
	}
	if err := s.CheckKey(key); err != nil {
		return nil, err
	}
	u := &upload{ctx: ctx, s: s, key: key, opts: opts}
	err := s.links.at(ctx, path.Dir(key), func(dir string) error {
		u.temp, u.at = fileshare.NewTemporary(dir), path.Join(dir, path.Base(key))
		return u.create()
	})
	if err != nil {
		err = classify("create", key, err)
		if u.temp != "" {
			s.left.Keep(u.temp, err)
		}
		return nil, err
	}
	s.left.Sweep(func(temp string) error { return s.discard(ctx, temp) })
	return u, nil
}

// create creates the temporary file.
func (u *upload) create() (err error) {
	// A concurrent Delete may remove the still empty directory.
	for range 20 {
		u.file, err = u.s.tree.Create(u.ctx, u.temp)
		if remote.StatusOf(err) != remote.NoEnt {
			return err
		}
		if err = u.s.mkdirAll(u.ctx, path.Dir(u.temp)); err != nil && remote.StatusOf(err) != remote.NoEnt {
			return err
		}
	}
	return err
}

// mkdirAll creates dir and its missing parents.
func (s *share) mkdirAll(ctx context.Context, dir string) error {
	names := strings.Split(dir, "/")
	for i := range names {
		at := strings.Join(names[:i+1], "/")
		a, err := s.tree.Stat(ctx, at)
		if err == nil && a.Type != remote.Directory {
			return &remote.Error{Status: remote.NotDir, Op: "LOOKUP"} // a link, which the caller resolves, or a file
		}
		if err == nil {
			continue
		}
		if remote.StatusOf(err) != remote.NoEnt {
			return err
		}
		if err := s.tree.Mkdir(ctx, at); err != nil && remote.StatusOf(err) != remote.Exist {
			return err
		}
	}
	return nil
}

// upload is the temporary file and state that both writers share.
type upload struct {
	ctx  context.Context // the context of Create, which bounds all writes
	s    *share
	key  string
	at   string // resolved path of the key
	temp string // temporary file beside at
	file remote.File
	opts backends.CreateOptions

	mu        sync.Mutex // guards the fields below
	claim     *backends.Claim
	over      error // permanent error
	published bool
	object    backends.Object
}

// flusher makes the written data durable and rewrites what the server lost. Data that the server has
// confirmed is not asked for again: it outlives a restart, and the file may have its key by then.
type flusher func(ctx context.Context) error

// commit publishes a file of size bytes. A call after an error continues at the step that failed.
func (u *upload) commit(ctx context.Context, size int64, flush flusher) (backends.Object, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return backends.Object{}, u.over
	}
	if u.published {
		return u.object, nil
	}
	if err := fileshare.Ended(ctx, "commit", u.key); err != nil {
		return backends.Object{}, err
	}
	if u.opts.Size >= 0 && size != u.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key,
			"%d bytes were announced but %d were written", u.opts.Size, size)
	}
	if err := flush(ctx); err != nil {
		return backends.Object{}, classify("commit", u.key, err)
	}
	attr, err := u.swap(ctx)
	if err != nil {
		return backends.Object{}, classify("commit", u.key, err)
	}
	if attr.Size != size {
		return backends.Object{}, backends.Errorf(backends.Corrupt, "commit", u.key, "%d bytes were written, but the file has %d", size, attr.Size)
	}
	u.object, u.published = describe(u.key, attr), true
	u.closeLater()
	return u.object, nil
}

// publish links or renames the temporary file to the key. If the response to an earlier request was
// lost, it finds its own file under the key and succeeds.
func (u *upload) publish(ctx context.Context) (remote.Attr, error) {
	var attr remote.Attr
	var err error
	if u.opts.IfAbsent {
		attr, err = u.s.tree.Link(ctx, u.file, u.temp, u.at)
	} else {
		attr, err = u.s.tree.Rename(ctx, u.file, u.temp, u.at)
	}
	status := remote.StatusOf(err)
	switch status {
	case remote.NoEnt, remote.Exist, remote.NotEmpty, remote.IsDir, remote.NotDir, remote.Inval:
	default:
		return attr, err
	}
	there, serr := u.s.tree.Stat(ctx, u.at)
	if serr != nil {
		return attr, err
	}
	if there.Type == remote.Directory {
		return attr, backends.Errorf(backends.Invalid, "commit", u.key, "a directory has this name: %w", err)
	}
	own, oerr := u.file.Attr(ctx)
	if oerr != nil || own.FileID != there.FileID {
		return attr, err
	}
	if u.opts.IfAbsent && status == remote.Exist { // the temporary name may be left
		if err := u.s.tree.Remove(ctx, u.temp, remote.Regular); err != nil && remote.StatusOf(err) != remote.NoEnt {
			return attr, err
		}
	}
	return u.file.Attr(ctx)
}

// Abort implements backends.Writer.
func (u *upload) Abort() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.published || u.over != nil {
		return nil
	}
	return u.dropLocked(backends.Errorf(backends.Invalid, "commit", u.key, "the writer was aborted"))
}

// dropLocked removes the temporary file and the directories that become empty.
func (u *upload) dropLocked(why error) error {
	u.over = why
	ctx, cancel := cleanup(u.ctx)
	defer cancel()
	_ = u.file.Close(ctx) // the data is discarded
	err := u.s.discard(ctx, u.temp)
	u.s.left.Keep(u.temp, err)
	if err == nil {
		u.claim.Release(ctx) // a removed file can no longer be renamed
	}
	return err
}

// discard removes a temporary file and the directories that become empty.
func (s *share) discard(ctx context.Context, temp string) error {
	err := s.tree.Remove(ctx, temp, remote.Regular)
	if err != nil && remote.StatusOf(err) != remote.NoEnt {
		return classify("abort", temp, err)
	}
	s.prune(ctx, path.Dir(temp))
	return nil
}

// closeLater closes the durable file in the background.
func (u *upload) closeLater() {
	ctx, cancel := cleanup(u.ctx)
	go func() {
		defer cancel()
		_ = u.file.Close(ctx) // otherwise the server closes it when the lease expires
	}()
}

// usable returns an error if no more data can be written.
func (u *upload) usable(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return u.over
	}
	if u.published {
		return backends.Errorf(backends.Invalid, "write", u.key, "the writer was committed")
	}
	return fileshare.Ended(ctx, "write", u.key)
}

// written records which instance of the server received some data.
type written struct {
	by  remote.Verifier
	one bool // all writes went to the same instance
}

// durable reports whether a COMMIT with verifier v confirms the data.
func (w written) durable(v remote.Verifier) bool { return w.one && w.by == v }

// put writes size bytes of src at off, with several blocks in flight.
func (u *upload) put(ctx context.Context, off int64, src io.ReaderAt, size int64) (written, error) {
	_, block := u.s.tree.Sizes()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(ahead)
	var mu sync.Mutex
	seen := make(map[remote.Verifier]bool)
	for at := int64(0); at < size && gctx.Err() == nil; at += int64(block) {
		g.Go(func() error {
			for from, to := at, min(at+int64(block), size); from < to; {
				n, v, err := u.file.WriteAt(gctx, off+from, int(to-from), func(p []byte) error {
					n, err := src.ReadAt(p, from)
					if n == len(p) {
						return nil
					}
					return err
				})
				if err != nil {
					return err
				}
				backends.Moved(ctx)
				from += int64(n)
				mu.Lock()
				seen[v] = true
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return written{}, err
	}
	var w written
	for w.by = range seen {
		w.one = len(seen) == 1
	}
	return w, nil
}

// writer is a sequential upload.
type writer struct {
	*upload
	block int
	buf   []byte
	sent  int64
	safe  int64   // how much of it is durable
	at    written // what was sent
}

func (w *writer) Write(p []byte) (n int, err error) {
	if err := w.usable(w.ctx); err != nil {
		return 0, err
	}
	for len(p) > 0 {
		if len(w.buf) == ahead*w.block {
			if err := w.flush(w.ctx); err != nil {
				return n, classify("write", w.key, err)
			}
		}
		take := min(len(p), ahead*w.block-len(w.buf))
		w.buf = append(w.buf, p[:take]...)
		p, n = p[take:], n+take
	}
	return n, nil
}

// flush sends the buffer. After an error the buffer is kept.
func (w *writer) flush(ctx context.Context) error {
	if len(w.buf) == 0 {
		return nil
	}
	at, err := w.put(ctx, w.sent, bytes.NewReader(w.buf), int64(len(w.buf)))
	if err != nil {
		return err
	}
	if w.sent > 0 {
		at.one = w.at.durable(at.by) && at.one
	}
	w.sent, w.at, w.buf = w.sent+int64(len(w.buf)), at, w.buf[:0]
	return nil
}

// Commit sends the buffer and publishes the file. It fails if the server has lost data, because a
// sequential writer cannot send it again.
func (w *writer) Commit(ctx context.Context) (backends.Object, error) {
	return w.commit(ctx, w.sent+int64(len(w.buf)), func(ctx context.Context) error {
		if err := w.flush(ctx); err != nil {
			return err
		}
		if w.sent == w.safe {
			return nil
		}
		v, err := w.file.Commit(ctx)
		if err == nil && !w.at.durable(v) {
			err = backends.Errorf(backends.Unavailable, "commit", w.key, "%s", lostWords)
			w.over = err
		}
		if err == nil {
			w.safe = w.sent
		}
		return err
	})
}

const lostWords = "the server was restarted and lost written data: write it again"

// partWriter writes parts. It keeps their sources in case the server loses data.
type partWriter struct {
	*upload
	part int64
	have map[int64]part // by offset; guarded by upload.mu
}

type part struct {
	src  *io.SectionReader
	at   written
	safe bool // durable
}

func (w *partWriter) WritePart(ctx context.Context, off int64, src *io.SectionReader) error {
	if err := w.usable(ctx); err != nil {
		return err
	}
	if err := fileshare.CheckPart(w.key, off, src.Size(), w.opts.Size, w.part); err != nil {
		return err
	}
	at, err := w.put(ctx, off, src, src.Size())
	if err != nil {
		return classify("write", w.key, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.have[off] = part{src: backends.Unpaced(src), at: at}
	return nil
}

// Commit publishes the file after all parts are durable.
func (w *partWriter) Commit(ctx context.Context) (backends.Object, error) {
	var size int64
	w.mu.Lock()
	for _, p := range w.have {
		size += p.src.Size()
	}
	w.mu.Unlock()
	return w.commit(ctx, size, w.flush)
}

// flush rewrites parts until the server confirms all of them. The caller holds the lock.
func (w *partWriter) flush(ctx context.Context) error {
	pending := make(map[int64]part)
	for off, p := range w.have {
		if !p.safe {
			pending[off] = p
		}
	}
	for try := 0; len(pending) > 0; try++ {
		if try == 3 {
			return backends.Errorf(backends.Unavailable, "commit", w.key, "%s", lostWords)
		}
		v, err := w.file.Commit(ctx)
		if err != nil {
			return err
		}
		for off, p := range pending {
			if p.safe = p.at.durable(v); p.safe {
				delete(pending, off)
			} else if p.at, err = w.put(ctx, off, p.src, p.src.Size()); err != nil {
				return err
			} else {
				pending[off] = p
			}
			w.have[off] = p
		}
	}
	return nil
}
