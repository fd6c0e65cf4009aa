package sftp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

var _ backends.Claims = (*Backend)(nil)

// CreateClaim implements backends.Claims. A claim file contains its token, since the protocol has
// no file ids. It is written under a unique name and then linked, so that no reader finds it empty.
func (b *Backend) CreateClaim(ctx context.Context, name string) (token string, err error) {
	s, err := b.pool.Get(ctx)
	if err != nil {
		return "", err
	}
	token = rand.Text()
	temp := fileshare.NewTemporary(path.Dir(name))
	h, err := b.create(ctx, s, temp)
	if err == nil {
		err = run(ctx, s, func(c *sftp.Client) error {
			_, err := h.file.WriteAt([]byte(token), 0)
			if err = errors.Join(err, h.file.Close()); err != nil {
				return err
			}
			return c.Link(b.at(temp), b.at(name))
		})
	}
	if code := status(err); code == statusFailure || code == statusExists {
		switch there, rerr := b.ReadClaim(ctx, name); {
		case rerr == nil && there == token:
			err = nil // the response to an earlier request was lost
		case rerr == nil:
			err = backends.Errorf(backends.Exist, "commit", name, "the claim exists")
		}
	}
	after, cancel := fileshare.Cleanup(ctx)
	defer cancel()
	if h.file != nil {
		rerr := run(after, s, func(c *sftp.Client) error { return c.Remove(b.at(temp)) })
		b.left.Keep(temp, classify("commit", temp, rerr))
	}
	return token, classify("commit", name, err)
}

// maxToken limits what is read of a file that is not a claim.
const maxToken = 64

// ReadClaim implements backends.Claims.
func (b *Backend) ReadClaim(ctx context.Context, name string) (string, error) {
	s, err := b.pool.Get(ctx)
	if err != nil {
		return "", err
	}
	token, err := call(ctx, s, func(c *sftp.Client) (string, error) {
		f, err := c.OpenFile(b.at(name), os.O_RDONLY)
		if err != nil {
			return "", err
		}
		text := make([]byte, maxToken)
		n, err := f.ReadAt(text, 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return string(text[:n]), errors.Join(err, f.Close())
	}, nil)
	return token, missing("commit", name, err)
}

// DeleteClaim implements backends.Claims.
func (b *Backend) DeleteClaim(ctx context.Context, name string) error {
	s, err := b.pool.Get(ctx)
	if err != nil {
		return err
	}
	err = run(ctx, s, func(c *sftp.Client) error { return c.Remove(b.at(name)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return classify("commit", name, err)
}

// swap replaces the file of one version. Writers exclude each other by claim files. Servers without
// hard links cannot create those, so there the version is only compared before.
func (u *upload) swap(ctx context.Context, s *session) error {
	current := func(ctx context.Context) (backends.Version, error) {
		obj, err := u.b.Stat(ctx, u.key)
		return obj.Version, err
	}
	replace := func(ctx context.Context) error { return classify("commit", u.key, u.place(ctx, s)) }
	if !u.b.extensions.link {
		is, err := current(ctx)
		if err != nil && backends.KindOf(err) != backends.NotExist {
			return err
		}
		if err := backends.CompareVersion(u.key, u.opts.IfVersion, is); err != nil {
			return err
		}
		return replace(ctx)
	}
	if u.claim == nil {
		u.claim = backends.NewClaim(u.b, u.key, u.opts.IfVersion)
	}
	err := u.claim.Replace(ctx, current, replace)
	if backends.KindOf(err) != backends.Changed || !u.unsure {
		return err
	}
	// The response to an earlier rename may have been lost.
	_, terr := u.b.lstat(ctx, s, u.temp)
	there, serr := u.b.stat(ctx, s, u.key)
	if errors.Is(terr, fs.ErrNotExist) && serr == nil && describe(u.key, there).Version == u.object.Version {
		return nil
	}
	return err
}
