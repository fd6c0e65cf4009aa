package oss

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/stager-dev/stager/backends"
)

// Create begins an object whose size may not be known. A part waits in memory until
// it is full.
func (b *bucket) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	return &stream{upload: b.newUpload(ctx, key, opts), begun: ctx}, nil
}

// stream is an upload whose parts come one after another.
type stream struct {
	*upload
	begun  context.Context // Write has none of its own
	buf    []byte
	number int // parts sent
}

func (s *stream) Write(p []byte) (n int, err error) {
	if s.ended {
		return 0, backends.Errorf(backends.Invalid, "write", s.key, "this write has ended")
	}
	for len(p) > 0 {
		if int64(len(s.buf)) == s.length {
			if err := s.flush(s.begun); err != nil {
				return n, err
			}
		}
		take := min(int64(len(p)), s.length-int64(len(s.buf)))
		s.buf = append(s.buf, p[:take]...)
		p, n = p[take:], n+int(take)
	}
	return n, nil
}

// flush sends what waits as the next part; after an error it still waits.
func (s *stream) flush(ctx context.Context) error {
	if s.id == "" {
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	if most := s.b.Facts().MaxParts; int64(s.number) == most {
		return &backends.Error{Op: "write", Key: s.key, Kind: backends.Unsupported, Err: errors.New(
			"a stream of unknown size ends at 10,000 parts of 16 MiB: say the size before")}
	}
	if err := s.send(ctx, s.number+1, io.NewSectionReader(bytes.NewReader(s.buf), 0, int64(len(s.buf)))); err != nil {
		return err
	}
	s.number++
	s.buf = s.buf[:0]
	return nil
}

// Commit sends what waits and publishes the object.
func (s *stream) Commit(ctx context.Context) (backends.Object, error) {
	switch {
	case s.ended:
	case s.id == "":
		s.small = s.buf
	case len(s.buf) > 0:
		if err := s.flush(ctx); err != nil {
			return backends.Object{}, err
		}
	}
	return s.upload.Commit(ctx)
}
