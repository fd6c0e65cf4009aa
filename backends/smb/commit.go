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
)

// abortWithin is how long Abort waits for the server.
const abortWithin = 15 * time.Second

// flushWithin is how long the server may take to bring a file to its disk, as long as
// it shows that it lives.
const flushWithin = 10 * time.Minute

// commit publishes the file, of which size bytes were written, when whole finds that
// all of them are with the server. Called again after an error it goes on where it
// failed.
func (u *upload) commit(ctx context.Context, size int64, whole func() error) (backends.Object, error) {
	u.committing.Lock()
	defer u.committing.Unlock()
	u.mu.Lock()
	over, flushed, published := u.over, u.flushed, u.published
	u.mu.Unlock()
	if over != nil {
		return backends.Object{}, over
	}
	if err := ended(ctx, "commit", u.key); err != nil {
		return backends.Object{}, err
	}
	if u.opts.Size >= 0 && size != u.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key,
			"%d bytes were announced and %d written", u.opts.Size, size)
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

// canceled is err, unless the context ended before.
func (u *upload) canceled(ctx context.Context, err error) error {
	if cerr := ended(ctx, "commit", u.key); cerr != nil {
		return cerr
	}
	return classify("commit", u.key, err)
}

// flush brings the bytes to the server's disk and closes the file. Its version is
// what it has then: servers set the time when a file is closed.
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
		u.over = backends.Errorf(backends.Corrupt, "commit", u.key, "%d bytes were written and the server has %d", size, info.EndOfFile)
		return u.over
	}
	return nil
}

// flushFile waits for the server's disk, and tells meanwhile that it lives.
func flushFile(ctx context.Context, h *handle) error {
	if !h.use() {
		return &lost{errRetired}
	}
	done := make(chan error, 1)
	go func() {
		defer h.done()
		done <- h.s.transfer(h.file.Sync)
	}()
	tick := time.NewTicker(h.s.silence / 3)
	defer tick.Stop()
	for since := time.Now(); ; {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if time.Since(since) < flushWithin {
				backends.Moved(ctx) // the session ends when the server is silent
			}
		}
	}
}

// publish gives the file its name.
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
		// The temporary file is not there: its rename worked, and the answer was lost.
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

// mine tells whether what has the key is the file that was written here.
func (u *upload) mine(info *smb2.FileStat) bool {
	return sameVersion(describe(u.key, info).Version, u.object.Version)
}

// replace renames, over what is there.
func (u *upload) replace(ctx context.Context, s *session, rename func() error) error {
	looked, directory, taken := false, false, false
	worth := func(err error) bool {
		if busy(err) || errors.Is(err, errClaimed) {
			return true
		}
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrExist) {
			return false
		}
		// Some servers deny with these words to replace a file that is open.
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

// Abort implements backends.Writer. One that failed may be called again.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortWithin)
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

// discard removes a temporary file, and the directories that are empty without it.
func (b *Backend) discard(ctx context.Context, temp string) error {
	s, err := b.pool.get(ctx)
	if err != nil {
		return err
	}
	if err := removePath(ctx, s, temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	prune(ctx, s, path.Dir(temp))
	return nil
}

// removeOrphan is discard for what a session that has ended may have left. The server may
// believe that it is still open; that is not waited for.
func (b *Backend) removeOrphan(ctx context.Context, temp string) error {
	return classify("abort", temp, b.discard(ctx, temp))
}
