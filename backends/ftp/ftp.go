package ftp

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// partSize is large, because a range that ends within a file costs what the server has sent beyond.
const partSize = 64 << 20

// server is a directory tree of a server as a store. Its methods are safe for concurrent use.
type server struct {
	pool *pool
}

var _ backends.Backend = (*server)(nil)

// Capabilities implements backends.Backend.
func (s *server) Capabilities() backends.Capabilities {
	return backends.Capabilities{Parallelism: s.pool.d.conns, PartSize: partSize}
}

// Close closes the connections.
func (s *server) Close() error {
	s.pool.close()
	return nil
}

// Create fails: these stores are only read.
func (s *server) Create(_ context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	return nil, backends.Errorf(backends.Unsupported, "create", key, "FTP servers are only read")
}

// Delete fails: these stores are only read.
func (s *server) Delete(_ context.Context, key string) error {
	return backends.Errorf(backends.Unsupported, "delete", key, "FTP servers are only read")
}

// List implements backends.Source.
func (s *server) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return fileshare.List(ctx, tree{s}, prefix)
}

// ListLevel implements backends.LevelLister.
func (s *server) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return fileshare.ListLevel(ctx, tree{s}, prefix)
}

// Stat implements backends.Source.
func (s *server) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := fileshare.CheckCall(ctx, tree{s}, "stat", key); err != nil {
		return backends.Object{}, err
	}
	info, err := s.stat(ctx, key)
	if err == nil {
		err = info.Regular("stat", key)
	}
	if err != nil {
		return backends.Object{}, missing("stat", key, err)
	}
	return info.Object(tree{s}, key), nil
}

func (s *server) stat(ctx context.Context, key string) (info fileshare.Info, err error) {
	err = s.with(ctx, func(c *conn) error {
		info, err = c.stat(key)
		return err
	})
	return info, err
}

// with runs f with a connection.
func (s *server) with(ctx context.Context, f func(*conn) error) error {
	c, err := s.pool.get(ctx)
	if err != nil {
		return err
	}
	defer s.pool.put(c)
	return ended(ctx, f(c))
}

// ended returns the error of a context that has ended, since calls then fail by the connection that
// it closes, else err.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// version returns the version of a file.
func version(i fileshare.Info) backends.Version {
	return backends.Version(fmt.Sprintf("%x-%x", i.Size, i.ModTime.Unix()))
}

// stat returns the attributes of a file, or of the target of a link. MLST would need one request
// less, but some servers report the size of the link.
func (c *conn) stat(key string) (info fileshare.Info, err error) {
	r, err := c.command([]int{codeFile}, "SIZE "+c.at(key))
	if err != nil {
		return info, err
	}
	if info.Size, err = strconv.ParseInt(strings.TrimSpace(r.text()), 10, 64); err != nil || info.Size < 0 {
		return info, fmt.Errorf("%w: %s", errNoReply, objectstore.OneLine(r.text()))
	}
	if c.noTimes {
		return info, nil
	}
	r, err = c.command([]int{codeFile}, "MDTM "+c.at(key))
	switch {
	case is(err, codeSyntax, codeNotHere):
		c.noTimes = true
		return info, nil
	case err != nil:
		return info, err
	}
	info.ModTime, err = parseTime(strings.TrimSpace(r.text()))
	return info, err
}

// parseTime parses a time of MDTM and of the fact modify, in seconds.
func parseTime(text string) (time.Time, error) {
	whole, _, _ := strings.Cut(text, ".")
	at, err := time.Parse("20060102150405", whole)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: the time %s", errNoReply, objectstore.OneLine(text))
	}
	return at, nil
}
