package smb

import (
	"context"
	"errors"
	"io/fs"
	"os"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// publishing is one attempt to publish an upload, in one session.
type publishing struct {
	*fileshare.Upload
	b *Backend
	s *session
}

// Publish renames the temporary file to the key.
func (p protocol) Publish(ctx context.Context, upload *fileshare.Upload) error {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return err
	}
	u := &publishing{upload, p.b, s}
	switch {
	case u.Opts.IfAbsent:
		err = u.claim(ctx)
	case u.Opts.IfVersion != "":
		err = u.swap(ctx)
	default:
		err = u.replace(ctx, func() error { return u.run(ctx, func(share *smb2.Share) error { return share.Rename(u.Temp, u.Key) }) })
	}
	if errors.Is(err, fs.ErrNotExist) {
		// The temporary file is gone: the rename worked and its response was lost.
		if info, serr := statPath(ctx, s, u.Key); serr == nil && u.Wrote(info) {
			err = nil
		}
	}
	return err
}

// run runs a call in the session.
func (u *publishing) run(ctx context.Context, f func(*smb2.Share) error) error {
	_, err := call(ctx, u.s, func(share *smb2.Share) (struct{}, error) { return struct{}{}, f(share) }, nil)
	return err
}

// replace renames over an existing file.
func (u *publishing) replace(ctx context.Context, rename func() error) error {
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
			info, serr := call(ctx, u.s, func(share *smb2.Share) (os.FileInfo, error) {
				return certain(func() (os.FileInfo, error) { return share.Stat(u.Key) })
			}, nil)
			directory, taken = serr == nil && info.IsDir(), serr == nil && !info.IsDir() || busy(serr)
		}
		return taken
	}
	err := u.b.displace(ctx, u.Key, worth, rename)
	switch {
	case err != nil && directory:
		return backends.Errorf(backends.Invalid, "commit", u.Key, "a directory has this name")
	case errors.Is(err, fs.ErrPermission) && taken:
		return backends.Errorf(backends.Permission, "commit", u.Key, "the server does not let this user replace the file, or another client has it open")
	}
	return err
}
