package main

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// logging has the flags for messages. Results go to standard output, everything else to standard
// error.
type logging struct {
	LogLevel  slog.Level `help:"Log level: debug, info, warn or error." default:"info"`
	LogFormat string     `help:"Log format: auto (colors on a terminal, else text), text or json." enum:"auto,text,json" default:"auto"`
	Quiet     bool       `short:"q" help:"Log only warnings and errors; show no progress."`
}

// console is the output for messages: standard error, or the area above the progress bars while
// there are any.
type console struct {
	quiet    bool
	terminal bool

	mu  sync.Mutex // guards out
	out io.Writer
}

// open returns the console, and a log that writes to it.
func (l logging) open(w *os.File) (*slog.Logger, *console) {
	c := &console{quiet: l.Quiet, terminal: isTerminal(w), out: w}
	level := l.LogLevel
	if l.Quiet {
		level = max(level, slog.LevelWarn)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch {
	case l.LogFormat == "json":
		opts.ReplaceAttr = plainSeconds
		return slog.New(slog.NewJSONHandler(c, opts)), c
	case l.LogFormat == "auto" && c.terminal:
		return slog.New(tint.NewTextHandler(c, &tint.Options{Level: level, TimeFormat: time.TimeOnly})), c
	}
	return slog.New(slog.NewTextHandler(c, opts)), c
}

// plainSeconds formats durations as seconds, as metrics and status do; the JSON handler would write
// nanoseconds.
func plainSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}

// Write writes a line of the log.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

// redirect sends further lines to w.
func (c *console) redirect(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = w
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
