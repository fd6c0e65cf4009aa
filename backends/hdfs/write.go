package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

const (
	// piece is the number of bytes written under one deadline.
	piece = 256 << 10
	// replicatedWithin limits how long Commit polls for confirmation of the last block.
	replicatedWithin = 20 * time.Second
	// abortWithin limits how long Abort tries to remove the file.
	abortWithin = 10 * time.Second
)

// Create implements backends.Sink. It creates a temporary file beside the final name.
func (b *store) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if err := b.CheckKey(key); err != nil {
		return nil, err
	}
	s, err := b.pool.get(ctx)
	if err != nil {
		return nil, explain(ctx, "create", key, err)
	}
	dir := path.Dir("/" + key)
	w := &writer{ctx: ctx, store: b, session: s, key: key, opts: opts, temp: fileshare.NewTemporary(dir)}
	if err := w.under(ctx, func() error { return w.begin(dir) }); err != nil {
		err = explain(ctx, "create", key, s.judge(err))
		_ = w.Abort() // the first error is more precise
		return nil, err
	}
	return w, nil
}

// writer is a file under its temporary name. Its session holds the HDFS lease, so nobody else can
// write to it.
type writer struct {
	ctx     context.Context // the context of Create, which bounds all writes
	store   *store
	session *session // nil after giveBack
	key     string
	temp    string
	opts    backends.CreateOptions
	file    *hdfs.FileWriter
	id      uint64 // file id
	written int64
	closed  bool            // the file is complete under its temporary name
	object  backends.Object // set when closed
	done    bool            // published
	over    error           // permanent error
	claim   *backends.Claim
}

// under runs one library call, and cuts the session if ctx ends.
func (w *writer) under(ctx context.Context, step func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s := w.session
	stop := context.AfterFunc(ctx, s.cut)
	err := step()
	if !stop() {
		s.cut()
	}
	return err
}

func (w *writer) begin(dir string) (err error) {
	library, err := w.session.library()
	if err != nil {
		return err
	}
	size, replicas, err := w.store.geometry(library)
	if err != nil {
		return err
	}
	// A concurrent Delete may remove the still empty directory.
	for range 100 {
		if err = w.session.mkdirs(dir); err == nil {
			w.session.writing = true
			w.file, err = library.CreateFile(w.temp, replicas, size, 0o644)
		} else if kind, _ := classify(err); kind == backends.Exist || belowAFile(err) {
			return backends.Errorf(backends.Invalid, "create", w.key, "a parent of the key is a file")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	st, err := w.session.status(w.temp)
	if err != nil {
		return err
	}
	w.id = st.GetFileId()
	return plain("create", w.key, st)
}

// geometry returns the block size and replication of a new file.
func (b *store) geometry(library *hdfs.Client) (blockSize int64, replicas int, err error) {
	d, err := library.ServerDefaults()
	if err != nil {
		return 0, 0, err
	}
	blockSize, replicas = d.BlockSize, d.Replication
	if b.blockSize > 0 {
		blockSize = b.blockSize
	}
	if b.replicas > 0 {
		replicas = b.replicas
	}
	return blockSize, replicas, nil
}

// Write implements io.Writer. The library cannot continue after a DataNode has failed, so the
// caller must then write the whole file again.
func (w *writer) Write(p []byte) (n int, err error) {
	if err := w.usable("write"); err != nil {
		return 0, err
	}
	for n < len(p) && err == nil {
		var took int
		err = w.under(w.ctx, func() error {
			return w.timed(w.store.pool.patience.write, func() error {
				took, err = w.file.Write(p[n:min(n+piece, len(p))])
				return err
			})
		})
		n += took
	}
	w.written += int64(n)
	if err != nil {
		err = explain(w.ctx, "write", w.key, err)
		w.over = err
	}
	return n, err
}

// timed runs a step that talks to DataNodes under a deadline. There is no deadline between steps,
// because the source may be slow.
func (w *writer) timed(within time.Duration, step func() error) error {
	if err := w.file.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	// The library also waits for confirmations without using its connection, where a deadline has
	// no effect.
	watch := time.AfterFunc(within+time.Second, w.session.cut)
	defer watch.Stop()
	if err := step(); err != nil {
		return err
	}
	return w.file.SetDeadline(time.Time{})
}

func (w *writer) usable(op string) error {
	if w.over != nil {
		return w.over
	}
	if w.done {
		return backends.Errorf(backends.Invalid, op, w.key, "the writer was committed")
	}
	return nil
}

// Commit closes the file, after the DataNodes confirm it, and publishes it.
func (w *writer) Commit(ctx context.Context) (backends.Object, error) {
	if err := w.usable("commit"); err != nil {
		return backends.Object{}, err
	}
	if err := fileshare.Ended(ctx, "commit", w.key); err != nil {
		return backends.Object{}, err
	}
	if w.opts.Size >= 0 && w.written != w.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", w.key,
			"%d bytes were announced but %d were written", w.opts.Size, w.written)
	}
	if !w.closed {
		if err := w.under(ctx, func() error { return w.finish(ctx) }); err != nil {
			w.over = explain(ctx, "commit", w.key, err)
			return backends.Object{}, w.over
		}
	}
	if err := w.swap(ctx); err != nil {
		return backends.Object{}, explain(ctx, "commit", w.key, err)
	}
	w.done = true
	w.giveBack()
	w.store.sweep(ctx)
	return w.object, nil
}

// finish closes the file and records its version, which a rename does not change.
func (w *writer) finish(ctx context.Context) error {
	err := closeConfirmed(ctx, func() error { return w.timed(w.store.pool.patience.write, w.file.Close) })
	if err != nil {
		return err
	}
	st, err := w.session.status(w.temp)
	if err != nil {
		return err
	}
	if int64(st.GetLength()) != w.written {
		return backends.Errorf(backends.Corrupt, "commit", w.key, "%d bytes were written, but the NameNode reports %d", w.written, st.GetLength())
	}
	w.object, w.closed = describe(w.key, st), true
	w.session.writing = false
	return nil
}

// closeConfirmed closes a file. It polls, because the NameNode allows that only after the DataNodes
// have confirmed the last block.
func closeConfirmed(ctx context.Context, closeFile func() error) error {
	until := time.Now().Add(replicatedWithin)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := closeFile()
		if err == nil || !hdfs.IsErrReplicating(err) || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// publish renames the file with a session from the pool, since that of the writer may be broken. If
// the response is lost, it checks whether the file already has the name.
func (w *writer) publish(ctx context.Context) error {
	err := w.store.with(ctx, "commit", w.key, func(s *session) error {
		return s.rename(w.temp, "/"+w.key, !w.opts.IfAbsent)
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	var there *hdfs.FileStatus
	if serr := w.store.with(ctx, "commit", w.key, func(s *session) (err error) {
		there, err = s.status("/" + w.key)
		return err
	}); serr != nil {
		return err
	}
	switch {
	case there.GetFileId() == w.id:
		return nil // the rename worked; only its response was lost
	case isDir(there):
		return backends.Errorf(backends.Invalid, "commit", w.key, "a directory has this name")
	}
	return err
}

// Abort removes the temporary file and the directories that become empty.
func (w *writer) Abort() error {
	if w.done || w.temp == "" {
		return nil
	}
	if w.over == nil {
		w.over = backends.Errorf(backends.Invalid, "commit", w.key, "the writer was aborted")
	} else if w.session != nil {
		w.session.cut() // a failed connection would only fail again, slowly
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortWithin)
	defer cancel()
	if w.file != nil && !w.closed && w.session != nil {
		// Only Close ends the goroutines of the library.
		_ = w.timed(abortWithin, w.file.Close) // the data is discarded
	}
	w.giveBack()
	temp := w.temp
	w.temp = ""
	err := w.store.discard(ctx, temp)
	w.store.left.Keep(temp, err)
	if err == nil {
		w.claim.Release(ctx) // a removed file can no longer be renamed
	}
	return err
}

// giveBack returns the session to the pool, at most once.
func (w *writer) giveBack() {
	if w.session != nil {
		w.store.pool.put(w.session)
		w.session = nil
	}
}
