package sftp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
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
	token = rand.Text()
	temp := fileshare.NewTemporary(path.Dir(name))
	opened, err := b.CreateFile(ctx, temp)
	if err != nil {
		b.Orphans.Keep(temp, classify("commit", temp, err))
		return "", classify("commit", name, err)
	}
	f := opened.(*file)
	defer f.Close()
	err = run(ctx, f.s, func(c *sftp.Client) error {
		_, err := f.handle.WriteAt([]byte(token), 0)
		if err = errors.Join(err, f.handle.Close()); err != nil {
			return err
		}
		return c.Link(b.at(temp), b.at(name))
	})
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
	rerr := run(after, f.s, func(c *sftp.Client) error { return c.Remove(b.at(temp)) })
	b.Orphans.Keep(temp, classify("commit", temp, rerr))
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
	return classify("commit", name, protocol{b}.Remove(ctx, name))
}
