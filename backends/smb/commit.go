package smb

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// flushWithin limits how long a flush to the disk of the server may take while the server still
// responds.
const flushWithin = 10 * time.Minute

// commit publishes a file of size bytes, after whole confirms that the server has all of them. A
// call after an error continues at the step that failed.
func (u *upload) commit(ctx context.Context, size int64, whole func() error) (backends.Object, error) {
	u.committing.Lock()
	defer u.committing.Unlock()
	u.mu.Lock()
	over, flushed, published := u.over, u.flushed, u.published
	u.mu.Unlock()
	if over != nil {
		return backends.Object{}, over
	}
	if err := fileshare.Ended(ctx, "commit", u.key); err != nil {
		return backends.Object{}, err
	}
	if u.opts.Size >= 0 && size != u.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key,
			"%d bytes were announced but %d were written", u.opts.Size, size)
	}
	if !flushed {
		if err := whole(); err != nil {
			return backends.Object{}, classify("commit", u.key, err)
		}
		if err := u.flush(ctx, size); err != nil {
			return backends.Object{}, u.canceled(ctx, err)
		}
	}
	if !published {
		if err := u.publish(ctx); err != nil {
			return backends.Object{}, u.canceled(ctx, err)
		}
	}
	return u.object, nil
}

// canceled returns the error of the context if it has ended, else err.
func (u *upload) canceled(ctx context.Context, err error) error {
	if cerr := fileshare.Ended(ctx, "commit", u.key); cerr != nil {
		return cerr
	}
	return classify("commit", u.key, err)
}

// flush writes the data to the disk of the server, closes the file and records its version. The
// version is taken after the close, because servers set the modification time then.
func (u *upload) flush(ctx context.Context, size int64) error {
	h, _, err := u.current(ctx)
	if err != nil {
		return err
	}
	if err := flushFile(ctx, h); err != nil {
		return err
	}
	h.retire()
	if err := h.wait(ctx); err != nil {
		return err
	}
	s, err := u.b.pool.get(ctx)
	if err != nil {
		return err
	}
	info, err := statPath(ctx, s, u.temp)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.object, u.flushed = describe(u.key, info), true
	if info.EndOfFile != size {
		u.over = backends.Errorf(backends.Corrupt, "commit", u.key, "%d bytes were written, but the server has %d", size, info.EndOfFile)
		return u.over
	}
	return nil
}

// flushFile waits for the disk of the server and reports progress meanwhile.
func flushFile(ctx context.Context, h *handle) error {
	if !h.use() {
		return &fileshare.LostError{Err: errRetired}
	}
	done := make(chan error, 1)
	go func() {
		defer h.done()
		done <- h.s.transfer(h.file.Sync)
	}()
	tick := time.NewTicker(h.s.Silence() / 3)
	defer tick.Stop()
	for since := time.Now(); ; {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if time.Since(since) < flushWithin {
				backends.Moved(ctx) // a silent server ends the session
			}
		}
	}
}

// publish renames the temporary file to the key.
func (u *upload) publish(ctx context.Context) error {
	s, err := u.b.pool.get(ctx)
	if err != nil {
		return err
	}
	switch {
	case u.opts.IfAbsent:
		err = u.claim(ctx, s)
	case u.opts.IfVersion != "":
		err = u.swap(ctx, s)
	default:
		err = u.replace(ctx, s, func() error { return u.rename(ctx, s) })
	}
	if errors.Is(err, fs.ErrNotExist) {
		// The temporary file is gone: the rename worked and its response was lost.
		if info, serr := statPath(ctx, s, u.key); serr == nil && u.mine(info) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.published = true
	return nil
}

// mine reports whether the file under the key is the one that this writer wrote.
func (u *upload) mine(info *smb2.FileStat) bool {
	return sameVersion(describe(u.key, info).Version, u.object.Version)
}

// replace renames over an existing file.
func (u *upload) replace(ctx context.Context, s *session, rename func() error) error {
	looked, directory, taken := false, false, false
	worth := func(err error) bool {
		if busy(err) || errors.Is(err, errClaimed) {
			return true
		}
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrExist) {
			return false
		}
		// Some servers return these errors when the target is open.
		if !looked {
			looked = true
			info, serr := call(ctx, s, func(share *smb2.Share) (os.FileInfo, error) { return share.Stat(u.key) }, nil)
			directory, taken = serr == nil && info.IsDir(), serr == nil && !info.IsDir() || busy(serr)
		}
		return taken
	}
	err := u.b.displace(ctx, u.key, worth, rename)
	switch {
	case err != nil && directory:
		return backends.Errorf(backends.Invalid, "commit", u.key, "a directory has this name")
	case errors.Is(err, fs.ErrPermission) && taken:
		return backends.Errorf(backends.Permission, "commit", u.key, "the server does not let this user replace the file, or another client has it open")
	}
	return err
}

func (u *upload) rename(ctx context.Context, s *session) error {
	_, err := call(ctx, s, func(share *smb2.Share) (struct{}, error) { return struct{}{}, share.Rename(u.temp, u.key) }, nil)
	return err
}

// Abort implements backends.Writer. It may be called again after an error.
func (u *upload) Abort() error {
	u.committing.Lock()
	defer u.committing.Unlock()
	u.mu.Lock()
	done, h := u.published || u.dropped, u.h
	if u.over == nil {
		u.over = backends.Errorf(backends.Invalid, "commit", u.key, "the writer was aborted")
	}
	u.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := fileshare.Cleanup(u.ctx)
	defer cancel()
	h.retire()
	err := h.wait(ctx)
	if err == nil {
		err = patiently(ctx, busy, func() error { return u.b.discard(ctx, u.temp) })
	}
	if err != nil {
		err = classify("abort", u.key, err)
		u.b.left.Keep(u.temp, err)
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropped = true
	return nil
}

// discard removes a temporary file and the directories that become empty.
func (b *Backend) discard(ctx context.Context, temp string) error {
	s, err := b.pool.get(ctx)
	if err != nil {
		return err
	}
	if err := removePath(ctx, s, temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b.prune(ctx, path.Dir(temp))
	return nil
}

// removeOrphan removes a temporary file that an ended session may have left. It does not wait if
// the server still considers the file open.
func (b *Backend) removeOrphan(ctx context.Context, temp string) error {
	return classify("abort", temp, b.discard(ctx, temp))
}
