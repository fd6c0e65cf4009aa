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
		s.Orphans.Keep(temp, classify("commit", name, err))
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
	s.Orphans.Keep(temp, classify("commit", temp, rerr))
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
	err := missing("commit", name, protocol{s}.Remove(ctx, name))
	if backends.KindOf(err) == backends.NotExist {
		return nil
	}
	return err
}
