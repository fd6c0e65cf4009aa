package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

var _ backends.Claims = (*store)(nil)

// CreateClaim implements backends.Claims. It creates a file with a unique name and renames it to
// the claim. The known file id shows who owns the claim if a response is lost.
func (b *store) CreateClaim(ctx context.Context, name string) (token string, err error) {
	temp := fileshare.NewTemporary("/" + path.Dir(name))
	err = b.with(ctx, "commit", name, func(s *session) error {
		library, err := s.library()
		if err != nil {
			return err
		}
		if err := library.CreateEmptyFile(temp); err != nil {
			return err
		}
		st, err := s.status(temp)
		if err != nil {
			return err
		}
		token = claimToken(st)
		return s.rename(temp, "/"+name, false)
	})
	if err == nil {
		return token, nil
	}
	if there, rerr := b.ReadClaim(ctx, name); rerr == nil && token != "" && there == token {
		return token, nil // the response to an earlier request was lost
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	b.left.Keep(temp, b.discard(after, temp))
	return "", err
}

// claimToken returns the file id, which is never reused.
func claimToken(st *hdfs.FileStatus) string { return fmt.Sprintf("%x", st.GetFileId()) }

// ReadClaim implements backends.Claims.
func (b *store) ReadClaim(ctx context.Context, name string) (token string, err error) {
	err = b.with(ctx, "commit", name, func(s *session) error {
		st, err := fileStatus(s.namenode, "commit", name)
		if err == nil {
			token = claimToken(st)
		}
		return err
	})
	return token, err
}

// DeleteClaim implements backends.Claims.
func (b *store) DeleteClaim(ctx context.Context, name string) error {
	err := b.with(ctx, "commit", name, func(s *session) error { return s.remove("/" + name) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// swap publishes the file. With IfVersion it replaces only that version.
func (w *writer) swap(ctx context.Context) error {
	if w.opts.IfVersion == "" {
		return w.publish(ctx)
	}
	if w.claim == nil {
		w.claim = backends.NewClaim(w.store, w.key, w.opts.IfVersion)
	}
	err := w.claim.Replace(ctx, func(ctx context.Context) (backends.Version, error) {
		obj, err := w.store.Stat(ctx, w.key)
		return obj.Version, err
	}, func(ctx context.Context) error { return explain(ctx, "commit", w.key, w.publish(ctx)) })
	if backends.KindOf(err) != backends.Changed {
		return err
	}
	// The response to an earlier rename may have been lost.
	if obj, serr := w.store.Stat(ctx, w.key); serr == nil && obj.Version == w.object.Version {
		return nil
	}
	return err
}
