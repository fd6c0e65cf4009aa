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
	LogFormat string     `help:"Log format: auto (short lines on a terminal, in color unless NO_COLOR is set; else text), text or json." enum:"auto,text,json" default:"auto"`
	Quiet     bool       `short:"q" help:"Log only warnings and errors; show no progress."`
}

// console is the output for messages: standard error, or the area above the progress bars while
// there are any.
type console struct {
	quiet    bool
	terminal bool // lines may be repainted

	mu  sync.Mutex // guards out
	out io.Writer
}

// open returns the console, and a log that writes to it.
func (l logging) open(w *os.File) (*slog.Logger, *console) {
	c := &console{quiet: l.Quiet, terminal: animates(isTerminal(w), os.Getenv), out: w}
	level := l.LogLevel
	if l.Quiet {
		level = max(level, slog.LevelWarn)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch {
	case l.LogFormat == "json":
		opts.ReplaceAttr = plainSeconds
		return slog.New(slog.NewJSONHandler(c, opts)), c
	case l.LogFormat == "auto" && (isTerminal(w) || forced(os.Getenv)):
		return slog.New(tint.NewTextHandler(c, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !colored(isTerminal(w), os.Getenv)})), c
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

// animates reports whether progress bars may repaint their lines.
func animates(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("TERM") != "dumb"
}

// colored reports whether text may have colors, by the conventions of no-color.org and
// bixense.com/clicolors: NO_COLOR wins.
func colored(terminal bool, getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && (forced(getenv) || animates(terminal, getenv))
}

// forced reports whether CLICOLOR_FORCE asks for colors without a terminal.
func forced(getenv func(string) string) bool {
	force := getenv("CLICOLOR_FORCE")
	return force != "" && force != "0"
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
