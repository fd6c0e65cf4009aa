package smb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	if u.opts.IfAbsent {
		err = u.claim(ctx, s)
	} else {
		err = u.replace(ctx, s)
	}
	if errors.Is(err, fs.ErrNotExist) {
		// The temporary file is not there: its rename worked, and the answer was lost.
		var mine bool
		if mine, _ = u.mine(ctx, s); mine {
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

// mine tells whether the key has the file that was written here, or any.
func (u *upload) mine(ctx context.Context, s *session) (mine, there bool) {
	info, err := statPath(ctx, s, u.key)
	if err != nil {
		return false, !errors.Is(err, fs.ErrNotExist)
	}
	return describe(u.key, info).Version == u.object.Version, true
}

// replace renames, over what is there.
func (u *upload) replace(ctx context.Context, s *session) error {
	looked, folder, taken := false, false, false
	worth := func(err error) bool {
		if busy(err) {
			return true
		}
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrExist) {
			return false
		}
		// Some servers deny with these words to replace a file that is open.
		if !looked {
			looked = true
			info, serr := call(ctx, s, func(share *smb2.Share) (os.FileInfo, error) { return share.Stat(u.key) }, nil)
			folder, taken = serr == nil && info.IsDir(), serr == nil && !info.IsDir() || busy(serr)
		}
		return taken
	}
	err := u.b.displace(ctx, u.key, worth, func() error { return u.rename(ctx, s) })
	switch {
	case err != nil && folder:
		return backends.Errorf(backends.Invalid, "commit", u.key, "a folder has this name")
	case errors.Is(err, fs.ErrPermission) && taken:
		return backends.Errorf(backends.Permission, "commit", u.key, "the server does not let this user replace the file, or another client has it open")
	}
	return err
}

func (u *upload) rename(ctx context.Context, s *session) error {
	_, err := call(ctx, s, func(share *smb2.Share) (struct{}, error) { return struct{}{}, share.Rename(u.temp, u.key) }, nil)
	return err
}

// claimName is the file that claims a key.
func claimName(key string) string {
	sum := sha256.Sum256([]byte(path.Base(key)))
	return path.Join(path.Dir(key), Temporary+"claim-"+hex.EncodeToString(sum[:8]))
}

// claim gives the file its name unless that is taken. The library renames only over
// what is there, so writers agree on a claim beside the key: a file that one of them
// makes, since the server makes it once, and holds open, since the server removes no
// open file. One whose owner is gone is open no more; it is removed.
//
// Samba gives a file its name a moment before it notes that the file is open, and in
// that moment lets another client remove it. So a claim holds only when its owner
// reads his signature back under its name.
//
// All is done in one session: if that ends, so does the claim, and what comes after
// does not reach the server.
func (u *upload) claim(ctx context.Context, s *session) error {
	name := claimName(u.key)
	taken := errors.New("the key is claimed by another writer")
	var held *smb2.File
	drop := func(f *smb2.File) { _ = s.do(func(share *smb2.Share) error { return unclaim(share, f, name) }) }
	since := time.Now()
	err := patiently(ctx, func(err error) bool { return errors.Is(err, taken) }, func() (err error) {
		held, err = call(ctx, s, func(share *smb2.Share) (*smb2.File, error) {
			f, err := share.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
			if errors.Is(err, fs.ErrExist) && share.Remove(name) == nil {
				f, err = share.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
			}
			if errors.Is(err, fs.ErrExist) || busy(err) || status(err) == statusDeletePending {
				return nil, taken
			}
			if err == nil && !signed(share, f, name, u.temp) {
				return nil, errors.Join(taken, f.Close())
			}
			return f, err
		}, drop)
		return err
	})
	if errors.Is(err, taken) {
		return backends.Errorf(backends.Unavailable, "commit", u.key, "%w since %v", taken, time.Since(since).Round(time.Second))
	}
	if err != nil {
		return err
	}
	defer drop(held)
	mine, there := u.mine(ctx, s)
	switch {
	case mine:
		return nil
	case there:
		return backends.Errorf(backends.Exist, "commit", u.key, "the key is taken")
	}
	return u.rename(ctx, s)
}

// signed writes whose claim it is, and tells whether that is what the name leads to.
func signed(share *smb2.Share, f *smb2.File, name, owner string) bool {
	if _, err := f.WriteAt([]byte(owner), 0); err != nil {
		return false
	}
	signature, err := share.ReadFile(name)
	return err == nil && string(signature) == owner
}

// unclaim removes a claim. Between closing and removing, another writer may remove it
// and hold its own, which the server then does not remove.
func unclaim(share *smb2.Share, f *smb2.File, name string) error {
	return errors.Join(f.Close(), share.Remove(name))
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
	if err := h.wait(ctx); err != nil {
		return classify("abort", u.key, err)
	}
	s, err := u.b.pool.get(ctx)
	if err != nil {
		return err
	}
	err = patiently(ctx, busy, func() error { return removePath(ctx, s, u.temp) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return classify("abort", u.key, err)
	}
	prune(ctx, s, path.Dir(u.key))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropped = true
	return nil
}
