package sftp

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/pkg/sftp"

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
	return u.because(ctx, classify("commit", u.key, err))
}

// flush writes the data to the disk of the server, records the version and closes the file.
func (u *upload) flush(ctx context.Context, size int64) error {
	h, err := u.current(ctx)
	if err != nil {
		return err
	}
	if u.b.extensions.fsync {
		if err := syncFile(ctx, h); err != nil {
			return err
		}
	}
	info, err := call(ctx, h.s, func(*sftp.Client) (os.FileInfo, error) { return h.file.Stat() }, nil)
	if err != nil {
		return err
	}
	u.b.clock.saw(info.ModTime(), time.Now())
	h.close()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.release()
	u.object, u.flushed = describe(u.key, info), true
	if info.Size() != size {
		u.over = backends.Errorf(backends.Corrupt, "commit", u.key, "%d bytes were written, but the server has %d", size, info.Size())
		return u.over
	}
	return nil
}

// syncFile waits for the disk of the server and reports progress meanwhile.
func syncFile(ctx context.Context, h handle) error {
	done := make(chan error, 1)
	go func() { done <- h.s.Do(h.file.Sync) }()
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

// publish gives the temporary file the name of the key.
func (u *upload) publish(ctx context.Context) error {
	s, err := u.b.pool.Get(ctx)
	if err != nil {
		return err
	}
	if u.opts.IfVersion != "" {
		err = u.swap(ctx, s)
	} else {
		err = u.place(ctx, s)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.unsure = u.unsure || fileshare.IsLost(err)
		return err
	}
	u.published = true
	return nil
}

// place renames or links the temporary file to the key. If the response to an earlier request was
// lost, it finds its own file under the key and succeeds.
func (u *upload) place(ctx context.Context, s *session) error {
	if u.opts.IfAbsent {
		return u.link(ctx, s)
	}
	if err := u.distinguish(ctx, s); err != nil {
		return err
	}
	err := run(ctx, s, func(c *sftp.Client) error {
		if u.b.extensions.rename {
			return c.PosixRename(u.b.at(u.temp), u.b.at(u.key))
		}
		return u.b.renameOver(c, u.temp, u.key)
	})
	if err == nil || fileshare.IsLost(err) {
		return err
	}
	there, serr := u.b.stat(ctx, s, u.key)
	switch {
	case serr == nil && there.IsDir():
		return backends.Errorf(backends.Invalid, "commit", u.key, "a directory has this name")
	case serr == nil && errors.Is(err, fs.ErrNotExist) && u.unsure && describe(u.key, there).Version == u.object.Version:
		return nil // the temporary file is gone, because it was renamed
	}
	return err
}

// renameOver replaces a file on a server whose rename does not. Readers may find no file meanwhile.
func (b *Backend) renameOver(c *sftp.Client, temp, key string) error {
	err := c.Rename(b.at(temp), b.at(key))
	if code := status(err); code != statusFailure && code != statusExists {
		return err
	}
	if info, serr := c.Stat(b.at(key)); serr != nil || info.IsDir() {
		return err
	}
	if rerr := c.Remove(b.at(key)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return rerr
	}
	return c.Rename(b.at(temp), b.at(key))
}

// distinguish makes sure that the version of the file is not that of the file that it replaces. A
// modification time has a resolution of one second, so a file that replaces another of the same
// size within a second would have its version. It then gets the next second.
func (u *upload) distinguish(ctx context.Context, s *session) error {
	there, err := u.b.stat(ctx, s, u.key)
	if err != nil && backends.KindOf(missing("commit", u.key, err)) == backends.NotExist {
		return nil
	}
	if err != nil || !there.Mode().IsRegular() {
		return err
	}
	behind := there.ModTime().Sub(u.object.ModTime)
	// A time that is far ahead was set by a program.
	if behind < 0 || behind > skew && there.ModTime() != u.object.ModTime {
		return nil
	}
	return u.setTime(ctx, s, there.ModTime().Add(tick))
}

// setTime changes the modification time of the temporary file.
func (u *upload) setTime(ctx context.Context, s *session, to time.Time) error {
	err := run(ctx, s, func(c *sftp.Client) error { return c.Chtimes(u.b.at(u.temp), to, to) })
	if errors.Is(err, fs.ErrNotExist) && u.unsure {
		return nil // it was renamed, which place finds out
	}
	if err != nil {
		return err
	}
	info, err := u.b.stat(ctx, s, u.temp)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.object = describe(u.key, info)
	return nil
}

// link publishes the file if no file has its name.
func (u *upload) link(ctx context.Context, s *session) error {
	if !u.b.extensions.link {
		// By the protocol, RENAME fails if the target exists. Not all servers keep to that.
		if _, err := u.b.stat(ctx, s, u.key); err == nil && !u.unsure {
			return backends.Errorf(backends.Exist, "commit", u.key, "the key already exists")
		}
		return run(ctx, s, func(c *sftp.Client) error { return c.Rename(u.b.at(u.temp), u.b.at(u.key)) })
	}
	err := run(ctx, s, func(c *sftp.Client) error { return c.Link(u.b.at(u.temp), u.b.at(u.key)) })
	if err != nil && !fileshare.IsLost(err) {
		there, serr := u.b.lstat(ctx, s, u.key)
		switch {
		case serr != nil:
			return err
		case there.IsDir():
			return backends.Errorf(backends.Exist, "commit", u.key, "a directory has this name")
		}
		mine, merr := u.isOwn(ctx, s)
		if merr != nil {
			return merr
		}
		if !mine {
			return backends.Errorf(backends.Exist, "commit", u.key, "the key already exists")
		}
	} else if err != nil {
		return err
	}
	err = run(ctx, s, func(c *sftp.Client) error { return c.Remove(u.b.at(u.temp)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The object is published. The second name is found by a sweep.
	u.b.left.Keep(u.temp, classify("commit", u.temp, err))
	return nil
}

func (b *Backend) lstat(ctx context.Context, s *session, key string) (os.FileInfo, error) {
	return call(ctx, s, func(c *sftp.Client) (os.FileInfo, error) { return c.Lstat(b.at(key)) }, nil)
}

// isOwn reports whether the key is a second name of the temporary file, which is the case if the
// response to an earlier LINK was lost. Files have no ids in the protocol, so it changes the time of
// the one name and looks at the other.
func (u *upload) isOwn(ctx context.Context, s *session) (bool, error) {
	if !u.unsure {
		return false, nil
	}
	for range 2 {
		if err := u.setTime(ctx, s, u.object.ModTime.Add(-tick)); err != nil {
			return false, err
		}
		there, err := u.b.stat(ctx, s, u.key)
		if err != nil || describe(u.key, there).Version != u.object.Version {
			return false, err
		}
	}
	return true, nil
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
	h.close()
	u.release()
	err := u.b.discard(ctx, u.temp)
	if err != nil {
		u.b.left.Keep(u.temp, err)
		return err
	}
	u.claim.Release(ctx) // a removed file can no longer be renamed
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropped = true
	return nil
}

// discard removes a temporary file and the directories that become empty.
func (b *Backend) discard(ctx context.Context, temp string) error {
	if err := b.removePath(ctx, temp); err != nil {
		return classify("abort", temp, err)
	}
	b.prune(ctx, path.Dir(temp))
	return nil
}
