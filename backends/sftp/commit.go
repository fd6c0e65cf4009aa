package sftp

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// publishing is one attempt to publish an upload, in one session.
type publishing struct {
	*fileshare.Upload
	b *Backend
	s *session
}

// Publish gives the temporary file the name of the key. With IfVersion, writers exclude each other
// by claim files. Servers without hard links cannot create those, so there the version is only
// compared before.
func (p protocol) Publish(ctx context.Context, upload *fileshare.Upload) error {
	s, err := p.b.pool.Get(ctx)
	if err != nil {
		return err
	}
	u := &publishing{upload, p.b, s}
	switch {
	case u.Opts.IfVersion == "":
		err = u.place(ctx)
	case !p.b.extensions.link:
		err = u.SwapUnclaimed(ctx, u.place)
	default:
		err = u.swap(ctx)
	}
	u.Unsure = u.Unsure || fileshare.IsLost(err)
	return p.b.because(ctx, s, u.Temp, err)
}

// swap replaces the file of one version.
func (u *publishing) swap(ctx context.Context) error {
	err := u.Swap(ctx, u.b, u.place)
	if backends.KindOf(err) == backends.Changed && u.placed(ctx) {
		return nil
	}
	return err
}

// placed reports whether an earlier rename, whose response was lost, gave the file its key.
func (u *publishing) placed(ctx context.Context) bool {
	if !u.Unsure {
		return false
	}
	_, terr := call(ctx, u.s, func(c *sftp.Client) (os.FileInfo, error) { return c.Lstat(u.b.at(u.Temp)) }, nil)
	there, serr := u.b.stat(ctx, u.s, u.Key)
	return errors.Is(terr, fs.ErrNotExist) && serr == nil && u.Wrote(there)
}

// place renames or links the temporary file to the key. If the response to an earlier request was
// lost, it finds its own file under the key and succeeds.
func (u *publishing) place(ctx context.Context) error {
	if u.Opts.IfAbsent {
		return u.link(ctx)
	}
	if err := u.distinguish(ctx); err != nil {
		return err
	}
	err := run(ctx, u.s, func(c *sftp.Client) error {
		if u.b.extensions.rename {
			return c.PosixRename(u.b.at(u.Temp), u.b.at(u.Key))
		}
		return u.renameOver(c)
	})
	if err == nil || fileshare.IsLost(err) {
		return err
	}
	if there, serr := u.b.stat(ctx, u.s, u.Key); serr == nil && there.Type.IsDir() {
		return backends.Errorf(backends.Invalid, "commit", u.Key, "a directory has this name")
	}
	if !u.placed(ctx) {
		return err
	}
	if u.b.extensions.rename {
		return nil
	}
	return run(ctx, u.s, func(c *sftp.Client) error {
		u.dropAside(c)
		return nil
	})
}

// renameOver replaces a file on a server whose rename does not. The file is moved aside, and back if
// the new one does not get its name. Readers may find no file meanwhile. Servers of version 3 may say
// the same when the temporary file is missing as when the key exists, so that is made sure of first: an
// earlier rename, whose response was lost, may have given it the key.
func (u *publishing) renameOver(c *sftp.Client) error {
	temp, key, aside := u.b.at(u.Temp), u.b.at(u.Key), u.b.at(u.aside())
	err := c.Rename(temp, key)
	if err == nil && u.Unsure { // an earlier attempt may have moved the file
		u.dropAside(c)
	}
	if code := status(err); code != statusFailure && code != statusExists {
		return err
	}
	if _, terr := c.Lstat(temp); terr != nil {
		return terr
	}
	if info, serr := c.Stat(key); serr != nil || info.IsDir() {
		return err
	}
	if rerr := c.Rename(key, aside); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return rerr
	}
	if err = c.Rename(temp, key); err != nil {
		_ = c.Rename(aside, key) // err is more useful
		if _, serr := c.Lstat(key); serr != nil {
			return err // the only copy stays aside
		}
	}
	u.dropAside(c)
	return err
}

// aside is the name of the file that is replaced, until it is.
func (u *publishing) aside() string { return u.Temp + "-old" }

// dropAside removes the replaced file. If that fails, it is tried again later.
func (u *publishing) dropAside(c *sftp.Client) {
	if err := c.Remove(u.b.at(u.aside())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.b.Orphans.Keep(u.aside(), classify("commit", u.aside(), &fileshare.LostError{Err: err}))
	}
}

// distinguish makes sure that the version of the file is not that of the file that it replaces. A
// modification time has a resolution of one second, so a file that replaces another of the same
// size within a second would have its version. It then gets the next second.
func (u *publishing) distinguish(ctx context.Context) error {
	there, err := u.b.stat(ctx, u.s, u.Key)
	if err != nil && backends.KindOf(missing("commit", u.Key, err)) == backends.NotExist {
		return nil
	}
	if err != nil || !there.Type.IsRegular() {
		return err
	}
	behind := there.ModTime.Sub(u.Info.ModTime)
	// A time that is far ahead was set by a program.
	if behind < 0 || behind > skew && there.ModTime != u.Info.ModTime {
		return nil
	}
	return u.setTime(ctx, there.ModTime.Add(tick))
}

// setTime changes the modification time of the temporary file.
func (u *publishing) setTime(ctx context.Context, to time.Time) error {
	err := run(ctx, u.s, func(c *sftp.Client) error { return c.Chtimes(u.b.at(u.Temp), to, to) })
	if errors.Is(err, fs.ErrNotExist) && u.Unsure {
		return nil // it was renamed, which place finds out
	}
	if err != nil {
		return err
	}
	info, err := u.b.stat(ctx, u.s, u.Temp)
	if err != nil {
		return err
	}
	u.Info = info
	return nil
}

// link publishes the file if no file has its name.
func (u *publishing) link(ctx context.Context) error {
	if !u.b.extensions.link {
		// By the protocol, RENAME fails if the target exists. Not all servers keep to that.
		if _, err := u.b.stat(ctx, u.s, u.Key); err == nil && !u.Unsure {
			return backends.Errorf(backends.Exist, "commit", u.Key, "the key already exists")
		}
		err := run(ctx, u.s, func(c *sftp.Client) error { return c.Rename(u.b.at(u.Temp), u.b.at(u.Key)) })
		if err != nil && !fileshare.IsLost(err) && u.placed(ctx) {
			return nil
		}
		return err
	}
	err := run(ctx, u.s, func(c *sftp.Client) error { return c.Link(u.b.at(u.Temp), u.b.at(u.Key)) })
	if fileshare.IsLost(err) {
		return err
	}
	if err != nil {
		there, serr := call(ctx, u.s, func(c *sftp.Client) (os.FileInfo, error) { return c.Lstat(u.b.at(u.Key)) }, nil)
		switch {
		case serr != nil:
			return err
		case there.IsDir():
			return backends.Errorf(backends.Exist, "commit", u.Key, "a directory has this name")
		}
		mine, merr := u.isOwn(ctx)
		if merr != nil {
			return merr
		}
		if !mine {
			return backends.Errorf(backends.Exist, "commit", u.Key, "the key already exists")
		}
	}
	err = run(ctx, u.s, func(c *sftp.Client) error { return c.Remove(u.b.at(u.Temp)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The object is published. The second name is found by a sweep.
	u.b.Orphans.Keep(u.Temp, classify("commit", u.Temp, err))
	return nil
}

// isOwn reports whether the key is a second name of the temporary file, which is the case if the
// response to an earlier LINK was lost. Files have no ids in the protocol, so it changes the time of
// the one name and looks at the other.
func (u *publishing) isOwn(ctx context.Context) (bool, error) {
	if !u.Unsure {
		return false, nil
	}
	for range 2 {
		if err := u.setTime(ctx, u.Info.ModTime.Add(-tick)); err != nil {
			return false, err
		}
		there, err := u.b.stat(ctx, u.s, u.Key)
		if err != nil || !u.Wrote(there) {
			return false, err
		}
	}
	return true, nil
}
