package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/stager/plan"
)

// reaching has the flags of every command that sends requests to a store.
type reaching struct {
	Connections int           `help:"Maximum concurrent requests; 0 adapts to the store." default:"0"`
	RetryFor    time.Duration `help:"How long to retry a failing store without progress. Default: 2m, and 20s for ls, cat, du and check." placeholder:"DURATION"`
	StallAfter  time.Duration `help:"Reconnect a stream that has received no bytes for this long. Default: 30s, and 10s for ls, cat and du." placeholder:"DURATION"`
	NoHedge     bool          `help:"Do not hedge: never send a second request while a slow one is pending."`
	Secrets     string        `help:"Directory with credential files. Default: credentials of the environment." placeholder:"DIR"`
}

// Defaults of commands that a person waits for.
const (
	interactiveRetryFor   = 20 * time.Second
	interactiveStallAfter = 10 * time.Second
)

// interactive shortens the defaults for a command that a person waits for.
func (r *reaching) interactive() {
	r.RetryFor, r.StallAfter = cmp.Or(r.RetryFor, interactiveRetryFor), cmp.Or(r.StallAfter, interactiveStallAfter)
}

// storing has the flags of every command that transfers data to or from a store.
type storing struct {
	reaching
	Bandwidth quantity `help:"Bandwidth limit in bytes per second, such as 200Mi; 0 is unlimited." default:"0"`
}

// options returns the options of a store.
func (s storing) options(log *slog.Logger) backends.Options {
	opts := backends.Options{
		Connections: s.Connections, RetryFor: s.RetryFor, StallAfter: s.StallAfter, NoHedge: s.NoHedge,
		Secrets: s.Secrets, Getenv: os.Getenv, Log: log, Memory: memoryLimit(),
	}
	if s.Bandwidth > 0 {
		opts.Bandwidth = rate.NewLimiter(rate.Limit(s.Bandwidth), bandwidthBurst)
	}
	return opts
}

// bandwidthBurst is the burst size of the bandwidth limit in bytes: a quarter of a mebibyte.
const bandwidthBurst = 256 << 10

// open opens a URL, or a local path.
func (s storing) open(ctx context.Context, location string, log *slog.Logger) (*backends.Store, error) {
	at, err := asURL(location)
	if err != nil {
		return nil, err
	}
	return all.Registry().Open(ctx, at, s.options(log))
}

// openToWrite opens a URL, or a local path, unless its protocol can only be read.
func (s storing) openToWrite(ctx context.Context, location string, log *slog.Logger) (*backends.Store, error) {
	at, err := asURL(location)
	if err == nil {
		err = all.Registry().CheckDestination(at)
	}
	if err != nil {
		return nil, err
	}
	return s.open(ctx, location, log)
}

// openFor is open or openToWrite.
func (s storing) openFor(ctx context.Context, location string, write bool, log *slog.Logger) (*backends.Store, error) {
	if write {
		return s.openToWrite(ctx, location, log)
	}
	return s.open(ctx, location, log)
}

// parsePlan parses a plan that is to be run. A destination that can only be read is a readOnlyError.
func parsePlan(text []byte) (*plan.StagePlan, error) {
	var readOnly error
	p, err := plan.ParseWith(text, all.Registry().Check, func(url string) error {
		err := all.Registry().CheckDestination(url)
		if errors.Is(err, backends.ErrReadOnly) {
			readOnly = err
		}
		return err
	})
	if err != nil && readOnly != nil {
		err = &readOnlyError{err}
	}
	return p, err
}

// readOnlyError is a plan with a destination that can only be read.
type readOnlyError struct{ error }

// asURL returns the file URL of a local path; it returns a URL unchanged.
func asURL(location string) (string, error) {
	if strings.Contains(location, "://") {
		return location, nil
	}
	abs, err := filepath.Abs(location)
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(location, "/") {
		abs += "/"
	}
	return (&url.URL{Scheme: "file", Path: abs}).String(), nil
}

// choosing has the flags of commands that select a part of a source.
type choosing struct {
	Include []string `help:"Only objects that match, such as *.tar or train/**/*.jpg. Repeatable." placeholder:"GLOB" sep:"none"`
	Exclude []string `help:"Skip objects that match. Repeatable." placeholder:"GLOB" sep:"none"`
	Shard   string   `help:"Process only partition I of N, counted from 0, such as one per node." placeholder:"I/N"`
}

// listing converts the flags.
func (c choosing) listing() (l plan.Listing, err error) {
	l.Filter = plan.Filter{Include: c.Include, Exclude: c.Exclude}
	if c.Shard != "" {
		if l.Shard, err = plan.ParseShard(c.Shard); err != nil {
			return l, &usageError{err}
		}
	}
	if err := l.Check(); err != nil {
		return l, &usageError{err}
	}
	return l, nil
}

// quantity is a number of bytes, as in plans: 60Gi, 500M or an integer.
type quantity int64

// UnmarshalText parses a quantity.
func (q *quantity) UnmarshalText(text []byte) error {
	b, err := plan.ParseBytes(string(text))
	*q = quantity(b)
	return err
}
