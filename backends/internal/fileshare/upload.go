package fileshare

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// An Upload is a temporary file that becomes an object:
//
//	create → write → Finish: durable → Publish: under its key
//	                 Abort: removed
//
// Writers share it. Its exported fields are for Publish, which is never called concurrently.
type Upload struct {
	Key  string
	Temp string
	Opts backends.CreateOptions
	// Info describes the finished temporary file. Publish may change it.
	Info Info
	// Unsure is for Publish alone: an earlier request to publish may have been carried out.
	Unsure bool

	share *Share
	ctx   context.Context // ends all writes: with that of Create, and with the upload
	end   context.CancelFunc

	committing sync.Mutex // held by Commit and Abort
	claim      *backends.Claim

	mu        sync.Mutex // guards the fields below
	file      TempFile
	over      error // permanent error
	dropped   bool  // the temporary file is removed
	finished  bool
	published bool
}

// newUpload creates the temporary file and its directories.
func (s *Share) newUpload(ctx context.Context, key string, opts backends.CreateOptions) (*Upload, error) {
	if err := Ended(ctx, "create", key); err != nil {
		return nil, err
	}
	if err := s.CheckKey(key); err != nil {
		return nil, err
	}
	u := &Upload{share: s, Key: key, Temp: NewTemporary(path.Dir(key)), Opts: opts}
	u.ctx, u.end = context.WithCancel(ctx)
	var err error
	if u.file, err = s.CreateFile(ctx, u.Temp); err != nil {
		u.end()
		err = s.p.Classify("create", key, err)
		s.Orphans.Keep(u.Temp, err)
		return nil, err
	}
	s.Orphans.Sweep(func(temp string) error { return s.removeOrphan(ctx, temp) })
	return u, nil
}

// CreateFile creates a file and the missing directories above it, and opens it for writing.
func (s *Share) CreateFile(ctx context.Context, name string) (f TempFile, err error) {
	// A concurrent Delete may remove the still empty directory.
	for range 100 {
		f, err = s.p.Create(ctx, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		if err := s.makeDirs(ctx, path.Dir(name)); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// makeDirs creates dir and its missing parents.
func (s *Share) makeDirs(ctx context.Context, dir string) (err error) {
	if dir == "." {
		return nil
	}
	// SFTP has no status for a name that exists, and a concurrent Delete may remove that directory before Stat.
	for range 10 {
		err = s.p.Mkdir(ctx, dir)
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.makeDirs(ctx, path.Dir(dir)); err != nil {
				return err
			}
			err = s.p.Mkdir(ctx, dir)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil // a concurrent Delete removed the parent; CreateFile tries again
		}
		info, serr := s.p.Stat(ctx, dir)
		switch {
		case serr == nil && !info.Type.IsDir():
			return backends.Errorf(backends.Invalid, "create", dir, "a parent of the key is a file")
		case serr == nil, errors.Is(err, fs.ErrExist):
			return nil
		case !errors.Is(serr, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return err
		}
	}
	return err
}

// Swap calls replace if the object still has the version that the options expect. Writers exclude
// each other by claim files. It is the Publish of protocols with exclusive names.
func (u *Upload) Swap(ctx context.Context, claims backends.Claims, replace func(context.Context) error) error {
	if u.claim == nil {
		u.claim = backends.NewClaim(claims, u.Key, u.Opts.IfVersion)
	}
	return u.claim.Replace(ctx, u.current, func(ctx context.Context) error {
		return u.share.p.Classify("commit", u.Key, replace(ctx))
	})
}

// SwapUnclaimed is Swap for servers on which writers cannot exclude each other: it compares the
// version just before the replacement.
func (u *Upload) SwapUnclaimed(ctx context.Context, replace func(context.Context) error) error {
	is, err := u.current(ctx)
	if err != nil && backends.KindOf(err) != backends.NotExist {
		return err
	}
	if err := backends.CompareVersion(u.Key, u.Opts.IfVersion, is); err != nil {
		return err
	}
	return u.share.p.Classify("commit", u.Key, replace(ctx))
}

// current returns the version of the object.
func (u *Upload) current(ctx context.Context) (backends.Version, error) {
	obj, err := u.share.Stat(ctx, u.Key)
	return obj.Version, err
}

// Wrote reports whether i describes the file that this upload wrote.
func (u *Upload) Wrote(i Info) bool {
	return u.share.p.Same(u.share.p.Version(i), u.share.p.Version(u.Info))
}

// File returns the temporary file, which Finish may have closed.
func (u *Upload) File() TempFile {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.file
}

// usable returns an error if no more data can be written.
func (u *Upload) usable(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return u.over
	}
	if u.published || u.finished {
		return backends.Errorf(backends.Invalid, "write", u.Key, "the writer was committed")
	}
	return Ended(ctx, "write", u.Key)
}

// open returns the open file. It reopens the file if its session has ended.
func (u *Upload) open(ctx context.Context) (TempFile, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.file.Err() == nil {
		return u.file, nil
	}
	u.file.Close()
	f, err := u.file.Reopen(ctx)
	if err != nil {
		return nil, u.share.p.Classify("write", u.Key, err)
	}
	u.file = f
	return f, nil
}

// commit publishes a file of size bytes, after whole confirms that the server has all of them. A
// call after an error continues at the step that failed.
func (u *Upload) commit(ctx context.Context, size int64, whole func() error) (backends.Object, error) {
	u.committing.Lock()
	defer u.committing.Unlock()
	u.mu.Lock()
	over, finished, published := u.over, u.finished, u.published
	u.mu.Unlock()
	if over != nil {
		return backends.Object{}, over
	}
	if err := Ended(ctx, "commit", u.Key); err != nil {
		return backends.Object{}, err
	}
	if u.Opts.Size >= 0 && size != u.Opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.Key,
			"%d bytes were announced but %d were written", u.Opts.Size, size)
	}
	if !finished {
		if err := whole(); err != nil {
			return backends.Object{}, u.share.p.Classify("commit", u.Key, err)
		}
		if err := u.finish(ctx, size); err != nil {
			return backends.Object{}, u.canceled(ctx, err)
		}
	}
	if !published {
		if err := u.share.p.Publish(ctx, u); err != nil {
			return backends.Object{}, u.canceled(ctx, err)
		}
		u.mu.Lock()
		u.published = true
		u.file.Close()
		u.mu.Unlock()
		u.end()
	}
	return u.Info.Object(u.share.p, u.Key), nil
}

// canceled returns the error of the context if it has ended, else err.
func (u *Upload) canceled(ctx context.Context, err error) error {
	if cerr := Ended(ctx, "commit", u.Key); cerr != nil {
		return cerr
	}
	return u.share.p.Classify("commit", u.Key, err)
}

// finish makes the data durable and records the attributes of the file.
func (u *Upload) finish(ctx context.Context, size int64) error {
	f, err := u.open(ctx)
	if err != nil {
		return err
	}
	info, err := f.Finish(ctx)
	if err != nil {
		return err
	}
	u.Info = info
	u.mu.Lock()
	defer u.mu.Unlock()
	u.finished = true
	if info.Size != size {
		u.over = backends.Errorf(backends.Corrupt, "commit", u.Key, "%d bytes were written, but the server has %d", size, info.Size)
		return u.over
	}
	return nil
}

// Abort implements backends.Writer. It may be called again after an error.
func (u *Upload) Abort() error {
	u.committing.Lock()
	defer u.committing.Unlock()
	u.mu.Lock()
	done, f := u.published || u.dropped, u.file
	if u.over == nil {
		u.over = backends.Errorf(backends.Invalid, "commit", u.Key, "the writer was aborted")
	}
	u.mu.Unlock()
	if done {
		return nil
	}
	u.end()
	ctx, cancel := Cleanup(u.ctx)
	defer cancel()
	if err := f.Discard(ctx); err != nil {
		err = u.share.p.Classify("abort", u.Key, err)
		u.share.Orphans.Keep(u.Temp, err)
		return err
	}
	u.share.prune(ctx, u.Temp)
	u.claim.Release(ctx) // a removed file can no longer be renamed
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropped = true
	return nil
}

// flushWithin limits how long a flush to the disk of the server may take while the server still
// responds.
const flushWithin = 10 * time.Minute

// Flush runs a call that waits for the disk of the server, and reports progress meanwhile: a silent
// server ends the session, whose Silence it passes.
func Flush(ctx context.Context, silence time.Duration, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	tick := time.NewTicker(silence / 3)
	defer tick.Stop()
	for since := time.Now(); ; {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if time.Since(since) < flushWithin {
				backends.Moved(ctx)
			}
		}
	}
}
