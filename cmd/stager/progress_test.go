package main

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vbauerster/mpb/v8"
)

// Ctrl-C filled the bar to 100 %, as if everything had been fetched.
func TestBarStaysWhereTheWorkWasCutShort(t *testing.T) {
	for _, tt := range []struct {
		bytes int64
		want  string // the last percentage shown
	}{{300, "30 %"}, {1000, "100 %"}, {0, "0 %"}} {
		var printed bytes.Buffer
		d := &display{to: new(console), done: make(chan struct{}), clock: time.Now}
		d.bars = mpb.New(mpb.WithOutput(&printed), mpb.WithWidth(40), mpb.WithAutoRefresh())
		d.bar = d.addBar()
		d.update(moving{Phase: "fetching", Bytes: tt.bytes, BytesTotal: 1000})
		d.close() // as commands do on exit and on interrupt
		all := regexp.MustCompile(`\d+ ?%`).FindAllString(printed.String(), -1)
		if len(all) == 0 || all[len(all)-1] != tt.want {
			t.Errorf("after %d of 1000 bytes: the bar ends with %q, want %q", tt.bytes, all, tt.want)
		}
	}
}

// The log of an init container stayed empty as long as it fetched. Without a terminal there is a line
// every 10 seconds, also while the store has not answered yet and nothing has been reported.
func TestProgressWithoutATerminalIsALineEvery10Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 10)
		d := newDisplay(new(console), slog.New(slog.NewTextHandler(lineWriter(lines), &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			},
		})))
		for _, tt := range []struct {
			report moving
			want   string // what the next 10 seconds print
		}{
			{moving{}, "msg=starting"},
			{moving{Phase: "listing"}, "msg=listing"},
			{moving{Phase: "fetching", Files: 3, FilesTotal: 9, Bytes: 100 << 20, BytesTotal: 1 << 30}, `msg=fetching files=3/9 bytes="100 MiB" of="1.0 GiB" rate="10 MiB/s"`},
			{moving{Phase: "fetching", Files: 3, FilesTotal: 9, Bytes: 100 << 20, BytesTotal: 1 << 30}, `msg=fetching files=3/9 bytes="100 MiB" of="1.0 GiB" rate="0 B/s"`},
			{moving{Phase: "unpacking", Unpacked: 7, Bytes: 1 << 30, BytesTotal: 1 << 30}, `msg=unpacking bytes="1.0 GiB" of="1.0 GiB" rate="92 MiB/s" unpacked_files=7`},
		} {
			if tt.report != (moving{}) {
				d.update(tt.report)
			}
			began := time.Now()
			if got := <-lines; got != tt.want {
				t.Errorf("after %+v: the log has %q, want %q", tt.report, got, tt.want)
			}
			if took := time.Since(began); took != lineEvery {
				t.Errorf("after %+v: the line came after %v, want %v", tt.report, took, lineEvery)
			}
		}
		d.close()
		if len(lines) > 0 {
			t.Errorf("got another line %q, want none", <-lines)
		}
	})
}

// lineWriter sends each line that is written.
type lineWriter chan<- string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- strings.TrimSpace(string(p))
	return len(p), nil
}
