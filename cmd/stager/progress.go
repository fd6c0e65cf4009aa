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

	"github.com/stager-dev/stager/backends"
)

// Progress of long operations: a bar on a terminal, otherwise a line every 10 seconds.

// moving is the progress of a transfer.
type moving struct {
	Phase      string
	Files      int
	FilesTotal int // 0 while unknown
	Bytes      int64
	BytesTotal int64 // 0 while unknown
	Unpacked   int   // files from archives
}

// display shows progress. Create it with newDisplay, and call close at the end.
type display struct {
	log  *slog.Logger
	to   *console
	bars *mpb.Progress
	bar  *mpb.Bar
	done chan struct{}
	wg   sync.WaitGroup

	clock func() time.Time

	mu     sync.Mutex // guards all below
	now    moving
	seen   bool      // progress was reported
	began  time.Time // time of the first report
	before int64     // bytes that were present then
}

// newSpinner returns a display for work whose progress is described in words, not in bytes.
func newSpinner(to *console, log *slog.Logger) *display {
	return startDisplay(to, log, func(d *display) *mpb.Bar {
		return d.bars.AddSpinner(0, mpb.BarWidth(2), mpb.BarRemoveOnComplete(),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return d.counts() })))
	})
}

// lineEvery is the interval between lines if there is no terminal.
const lineEvery = 10 * time.Second

func newDisplay(to *console, log *slog.Logger) *display {
	return startDisplay(to, log, (*display).addBar)
}

// addBar adds the bar of a transfer, with its counts and its rate.
func (d *display) addBar() *mpb.Bar {
	return d.bars.AddBar(0,
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return d.counts() })),
		mpb.AppendDecorators(
			decor.Percentage(decor.WCSyncSpace),
			decor.Any(func(decor.Statistics) string { return d.pace() }, decor.WCSyncSpace),
		))
}

func startDisplay(to *console, log *slog.Logger, bar func(*display) *mpb.Bar) *display {
	d := &display{log: log, to: to, done: make(chan struct{}), clock: time.Now, now: moving{Phase: "starting"}}
	switch {
	case to.quiet:
	case to.terminal:
		d.bars = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40), mpb.WithRefreshRate(150*time.Millisecond))
		d.bar = bar(d)
		to.redirect(d.bars) // log lines appear above the bar
	default:
		d.wg.Go(d.lines)
	}
	return d
}

// update sets the current progress. It may be called often, from any goroutine.
func (d *display) update(m moving) {
	d.mu.Lock()
	if d.now = m; !d.seen || m.Bytes < d.before {
		d.seen, d.began, d.before = true, d.clock(), m.Bytes
	}
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

// pace returns the mean rate, and the remaining time at that rate. Bytes from an earlier run do not
// count.
func (d *display) pace() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	took, moved := d.clock().Sub(d.began), d.now.Bytes-d.before
	if !d.seen || moved <= 0 || took <= 0 {
		return ""
	}
	rate := float64(moved) / took.Seconds()
	text := " " + backends.Rate(rate).String()
	if left := d.now.BytesTotal - d.now.Bytes; left > 0 {
		text += " " + time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second).String()
	}
	return text
}

// lines writes a line every lineEvery, until close.
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
		m := d.now
		d.mu.Unlock()
		rate := float64(m.Bytes-before) / lineEvery.Seconds()
		before = m.Bytes
		said := []any{
			"bytes", backends.Size(m.Bytes), "of", backends.Size(m.BytesTotal),
			"rate", backends.Rate(rate),
		}
		if m.FilesTotal > 0 {
			said = append([]any{"files", fmt.Sprintf("%d/%d", m.Files, m.FilesTotal)}, said...)
		}
		if m.Unpacked > 0 {
			said = append(said, "unpacked_files", m.Unpacked)
		}
		if m.FilesTotal == 0 && m.BytesTotal == 0 {
			said = nil // only that the work continues is known
		}
		d.log.Info(m.Phase, said...)
	}
}

// close ends the display; its last state stays on the terminal.
func (d *display) close() {
	close(d.done)
	d.wg.Wait()
	if d.bars != nil {
		d.mu.Lock()
		whole := d.now.Bytes >= d.now.BytesTotal
		d.mu.Unlock()
		if whole {
			d.bar.SetTotal(-1, true)
		} else {
			d.bar.Abort(false) // the work was interrupted: the bar stays where it is
		}
		d.bars.Wait()
		d.to.redirect(os.Stderr)
	}
}
