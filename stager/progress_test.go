package stager

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/plan"
)

// "kubectl logs POD -c stager-prefetch" showed nothing during the whole fetch.
func TestPrefetchLogsItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		in := newInput(plan.Input{Name: "train"})
		ctx, cancel := context.WithCancel(t.Context())
		go in.logProgress(ctx, log)
		time.Sleep(progressEvery + time.Second)
		in.mu.Lock()
		in.progress = &download.Progress{Phase: download.Fetching, Files: 3, FilesTotal: 9, Bytes: 50 << 20, BytesTotal: 90 << 20}
		in.mu.Unlock()
		time.Sleep(progressEvery)
		cancel()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []string{
			`level=INFO msg="still waiting for the store" input=train`,
			`level=INFO msg=fetching input=train files=3/9 bytes="50 MiB" of="90 MiB" rate="5.0 MiB/s"`,
		}
		if got := strings.TrimSpace(said.String()); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	})
}
