package main

import (
	"context"
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

// reaching are the flags of every command that asks a store.
type reaching struct {
	Connections int           `help:"Requests at once; 0 is what is found to suit the store." default:"0"`
	RetryFor    time.Duration `help:"How long a store may fail without progress before giving up." default:"2m"`
	StallAfter  time.Duration `help:"A stream without bytes for so long is cut and asked for again." default:"30s"`
	AskOnce     bool          `help:"Never ask for the same bytes a second time while the first answer is awaited; else that is done where it is unusually late."`
	Secrets     string        `help:"Folder with credential files; without it the environment's credentials are used." placeholder:"DIR"`
}

// storing are the flags of every command that moves bytes to or from a store.
type storing struct {
	reaching
	Bandwidth quantity `help:"Bytes per second at most, such as 200Mi; 0 is no limit." default:"0"`
}

// options are the surroundings of a store.
func (s storing) options(log *slog.Logger) backends.Options {
	opts := backends.Options{
		Connections: s.Connections, RetryFor: s.RetryFor, StallAfter: s.StallAfter, AskOnce: s.AskOnce,
		Secrets: s.Secrets, Getenv: os.Getenv, Log: log, Memory: memoryLimit(),
	}
	if s.Bandwidth > 0 {
		opts.Bandwidth = rate.NewLimiter(rate.Limit(s.Bandwidth), bandwidthBurst)
	}
	return opts
}

// bandwidthBurst is a quarter of a mebibyte: as much as passes at once.
const bandwidthBurst = 256 << 10

// open opens a URL, or a local path.
func (s storing) open(ctx context.Context, location string, log *slog.Logger) (*backends.Store, error) {
	at, err := asURL(location)
	if err != nil {
		return nil, err
	}
	return all.Registry().Open(ctx, at, s.options(log))
}

// asURL makes a file URL of a local path; a URL stays as it is.
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

// choosing are the flags of what takes a part of a source.
type choosing struct {
	Include []string `help:"Only what matches: *.tar, train/**/*.jpg. May stand several times." placeholder:"GLOB" sep:"none"`
	Exclude []string `help:"Not what matches." placeholder:"GLOB" sep:"none"`
	Shard   string   `help:"Only the i-th of n equal parts, counted from 0: one for each node." placeholder:"I/N"`
}

// listing is what they say.
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

// quantity is a number of bytes, as plans have it: 60Gi, 500M or a whole number.
type quantity int64

// UnmarshalText reads one.
func (q *quantity) UnmarshalText(text []byte) error {
	b, err := plan.ParseBytes(string(text))
	*q = quantity(b)
	return err
}
