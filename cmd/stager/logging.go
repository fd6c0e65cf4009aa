package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// logging is how stager speaks while it works. Results go to standard output, all
// else to standard error.
type logging struct {
	LogLevel  slog.Level `help:"How much to say: debug, info, warn or error." default:"info"`
	LogFormat string     `help:"auto is colours on a terminal and text elsewhere." enum:"auto,text,json" default:"auto"`
	Quiet     bool       `short:"q" help:"Say nothing but warnings and errors; no progress."`
}

func (l logging) logger(w *os.File) (*slog.Logger, logging) {
	if l.Quiet {
		l.LogLevel = max(l.LogLevel, slog.LevelWarn)
	}
	return slog.New(l.handler(w, isTerminal(w))), l
}

func (l logging) handler(w io.Writer, terminal bool) slog.Handler {
	opts := &slog.HandlerOptions{Level: l.LogLevel}
	switch {
	case l.LogFormat == "json":
		return slog.NewJSONHandler(w, opts)
	case l.LogFormat == "auto" && terminal:
		return tint.NewHandler(w, &tint.Options{Level: l.LogLevel, TimeFormat: time.TimeOnly})
	}
	return slog.NewTextHandler(w, opts)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
