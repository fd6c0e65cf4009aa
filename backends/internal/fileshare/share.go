package fileshare

import (
	"context"
	"iter"
	"path"

	"github.com/stager-dev/stager/backends"
)

// A Share is a directory tree of a server as a store: what a protocol's Backend embeds. The Backend
// adds Capabilities. Its methods are safe for concurrent use.
type Share struct {
	// Orphans are temporary files that may be left because the server did not respond.
	Orphans backends.Orphans

	p       Protocol
	config  Config
	buffers *buffers
}

var (
	_ backends.Source      = (*Share)(nil)
	_ backends.Sink        = (*Share)(nil)
	_ backends.PartCreator = (*Share)(nil)
	_ backends.KeyChecker  = (*Share)(nil)
	_ backends.Sweeper     = (*Share)(nil)
)

// New returns the share behind a protocol.
func New(p Protocol, c Config) *Share {
	return &Share{p: p, config: c, buffers: newBuffers(c.ChunkSize, c.Budget)}
}

// Close implements backends.Backend. It removes the temporary files of failed writes.
func (s *Share) Close() error {
	s.Orphans.SweepAtClose(s.removeOrphan)
	return s.p.Close()
}

// CheckKey implements backends.KeyChecker.
func (s *Share) CheckKey(key string) error { return s.p.CheckKey("create", key) }

// List implements backends.Source.
func (s *Share) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return List(ctx, s.p, prefix)
}

// Sweep implements backends.Sweeper.
func (s *Share) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	return Sweep(ctx, s.p, prefix, over)
}

// Stat implements backends.Source.
func (s *Share) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := CheckCall(ctx, s.p, "stat", key); err != nil {
		return backends.Object{}, err
	}
	info, err := s.p.Stat(ctx, key)
	if err == nil {
		err = info.Regular("stat", key)
	}
	if err != nil {
		return backends.Object{}, s.p.Missing("stat", key, err)
	}
	return info.Object(s.p, key), nil
}

// Delete implements backends.Sink. It also removes directories that become empty.
func (s *Share) Delete(ctx context.Context, key string) error {
	if err := CheckCall(ctx, s.p, "delete", key); err != nil {
		if backends.KindOf(err) == backends.NotExist {
			return nil // no object has such a key
		}
		return err
	}
	missing, err := isMissing(s.p, "delete", key, s.p.Delete(ctx, key))
	switch {
	case missing:
		return nil
	case err == nil:
		s.prune(ctx, key)
	}
	return err
}

// prune removes the directories above a removed file that have become empty.
func (s *Share) prune(ctx context.Context, name string) {
	dir := path.Dir(name)
	s.p.Prune(ctx, Place{dir, dir})
}

// removeOrphan removes a temporary file that an ended session may have left.
func (s *Share) removeOrphan(ctx context.Context, temp string) error {
	if err := s.p.Remove(ctx, temp); err != nil {
		return s.p.Classify("abort", temp, err)
	}
	s.prune(ctx, temp)
	return nil
}
