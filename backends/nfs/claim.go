package nfs

import (
	"context"
	"fmt"
	"path"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

var _ backends.Claims = (*share)(nil)

// CreateClaim implements backends.Claims. It creates a file with a unique name and links it to the
// claim. An exclusive create would not do: if the request is repeated, a server may respond that
// the file exists.
func (s *share) CreateClaim(ctx context.Context, name string) (token string, err error) {
	err = s.links.at(ctx, path.Dir(name), func(dir string) (err error) {
		token, err = s.createClaim(ctx, fileshare.NewTemporary(dir), path.Join(dir, path.Base(name)))
		return err
	})
	return token, classify("commit", name, err)
}

func (s *share) createClaim(ctx context.Context, temp, name string) (string, error) {
	f, err := s.tree.Create(ctx, temp)
	if err != nil {
		s.left.Keep(temp, classify("commit", name, err))
		return "", err
	}
	own, err := f.Attr(ctx)
	if err == nil {
		if _, err = s.tree.Link(ctx, f, temp, name); remote.StatusOf(err) == remote.Exist {
			if there, serr := s.tree.Stat(ctx, name); serr == nil && there.FileID == own.FileID {
				err = nil // the response to an earlier request was lost
			}
		}
	}
	after, cancel := cleanup(ctx)
	defer cancel()
	_ = f.Close(after) // nothing was written
	rerr := s.tree.Remove(after, temp, remote.Regular)
	s.left.Keep(temp, classify("commit", temp, rerr))
	return claimToken(own), err
}

// claimToken returns an identifier of a claim file. LINK changes neither of its parts.
func claimToken(a remote.Attr) string { return fmt.Sprintf("%x-%x", a.FileID, a.ModTime.UnixNano()) }

// ReadClaim implements backends.Claims.
func (s *share) ReadClaim(ctx context.Context, name string) (string, error) {
	a, _, err := s.links.stat(ctx, name)
	return claimToken(a), missing("commit", name, err)
}

// DeleteClaim implements backends.Claims.
func (s *share) DeleteClaim(ctx context.Context, name string) error {
	err := s.links.at(ctx, path.Dir(name), func(dir string) error {
		return s.tree.Remove(ctx, path.Join(dir, path.Base(name)), remote.Regular)
	})
	if err = missing("commit", name, err); backends.KindOf(err) == backends.NotExist {
		return nil
	}
	return err
}

// swap publishes the file. With IfVersion it replaces only that version.
func (u *upload) swap(ctx context.Context) (attr remote.Attr, err error) {
	if u.opts.IfVersion == "" {
		return u.publish(ctx)
	}
	if u.claim == nil {
		u.claim = backends.NewClaim(u.s, u.key, u.opts.IfVersion)
	}
	err = u.claim.Replace(ctx, func(ctx context.Context) (backends.Version, error) {
		obj, err := u.s.Stat(ctx, u.key)
		return obj.Version, err
	}, func(ctx context.Context) error {
		attr, err = u.publish(ctx)
		return classify("commit", u.key, err)
	})
	if backends.KindOf(err) != backends.Changed {
		return attr, err
	}
	// The response to an earlier rename may have been lost.
	if there, serr := u.s.tree.Stat(ctx, u.at); serr == nil {
		if own, oerr := u.file.Attr(ctx); oerr == nil && own.FileID == there.FileID {
			return own, nil
		}
	}
	return attr, err
}
