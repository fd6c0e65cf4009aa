package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress of long work: a bar on a terminal, a line every 10 seconds elsewhere.

// moving is how far a transfer is.
type moving struct {
	Phase      string
	Files      int
	FilesTotal int // 0 while it is not known
	Bytes      int64
	BytesTotal int64 // 0 while it is not known
	Unpacked   int   // files that came out of archives
}

// display shows it. Make one with newDisplay, and end it with close.
type display struct {
	log  *slog.Logger
	to   *console
	bars *mpb.Progress
	bar  *mpb.Bar
	done chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex // guards now
	now  moving
	seen bool // something came
}

// newSpinner is a display of work that is told in words, not in bytes.
func newSpinner(to *console, log *slog.Logger) *display {
	return startDisplay(to, log, func(d *display) *mpb.Bar {
		return d.bars.AddSpinner(0, mpb.BarWidth(2), mpb.BarRemoveOnComplete(),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return d.counts() })))
	})
}

// lineEvery is how often a line is written where there is no terminal.
const lineEvery = 10 * time.Second

func newDisplay(to *console, log *slog.Logger) *display {
	return startDisplay(to, log, func(d *display) *mpb.Bar {
		return d.bars.AddBar(0,
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return d.counts() })),
			mpb.AppendDecorators(
				decor.Percentage(decor.WCSyncSpace),
				decor.AverageSpeed(decor.SizeB1024(0), " % .1f", decor.WCSyncSpace),
				decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace), ""),
			))
	})
}

func startDisplay(to *console, log *slog.Logger, bar func(*display) *mpb.Bar) *display {
	d := &display{log: log, to: to, done: make(chan struct{}), now: moving{Phase: "starting"}}
	switch {
	case to.quiet:
	case to.terminal:
		d.bars = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40), mpb.WithRefreshRate(150*time.Millisecond))
		d.bar = bar(d)
		to.redirect(d.bars) // lines come above the bar
	default:
		d.wg.Go(d.lines)
	}
	return d
}

// update takes what is true now. It may be called from any goroutine, often.
func (d *display) update(m moving) {
	d.mu.Lock()
	d.now, d.seen = m, true
	d.mu.Unlock()
	if d.bar != nil {
		d.bar.SetTotal(m.BytesTotal, false)
		d.bar.SetCurrent(m.Bytes)
	}
}

func (d *display) counts() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.now
	text := m.Phase
	if m.FilesTotal > 0 {
		text += fmt.Sprintf(" %s of %s files,", humanize.Comma(int64(m.Files)), humanize.Comma(int64(m.FilesTotal)))
	}
	if m.BytesTotal > 0 {
		text += fmt.Sprintf(" %s of %s", humanize.IBytes(uint64(m.Bytes)), humanize.IBytes(uint64(m.BytesTotal)))
	}
	if m.Unpacked > 0 {
		text += fmt.Sprintf(", %s files unpacked", humanize.Comma(int64(m.Unpacked)))
	}
	return text + " "
}

// lines writes one every lineEvery, until close.
func (d *display) lines() {
	tick := time.NewTicker(lineEvery)
	defer tick.Stop()
	var before int64
	for {
		select {
		case <-d.done:
			return
		case <-tick.C:
		}
		d.mu.Lock()
		m, seen := d.now, d.seen
		d.mu.Unlock()
		if !seen {
			continue
		}
		rate := float64(m.Bytes-before) / lineEvery.Seconds()
		before = m.Bytes
		said := []any{
			"bytes", humanize.IBytes(uint64(m.Bytes)), "of", humanize.IBytes(uint64(m.BytesTotal)),
			"rate", humanize.IBytes(uint64(max(rate, 0))) + "/s",
		}
		if m.FilesTotal > 0 {
			said = append([]any{"files", fmt.Sprintf("%d/%d", m.Files, m.FilesTotal)}, said...)
		}
		if m.Unpacked > 0 {
			said = append(said, "unpacked_files", m.Unpacked)
		}
		if m.FilesTotal == 0 && m.BytesTotal == 0 {
			said = nil // nothing is known yet but that it goes on
		}
		d.log.Info(m.Phase, said...)
	}
}

// close ends the display; what was shown last stays on the terminal.
func (d *display) close() {
	close(d.done)
	d.wg.Wait()
	if d.bars != nil {
		d.bar.SetTotal(-1, true)
		d.bars.Wait()
		d.to.redirect(os.Stderr)
	}
}
