package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// A file that is still open for writing when the kernel reports that it was closed delays a
// checkpoint by milliseconds: its writer has another descriptor, or the kernel is not done with
// the first one. The next scan came after a quarter of the quiet period.
func TestFileStillOpenAfterItsCloseIsSeenAgainSoon(t *testing.T) {
	for _, open := range []time.Duration{10 * time.Millisecond, time.Second, 20 * time.Second} {
		t.Run(open.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir, hints := mem.New(), t.TempDir(), make(chan struct{}, 1)
				u := newUploader(t, dir, b, nil)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					u.run(ctx, hints)
				}()
				name := filepath.Join(dir, "step-1")
				write(t, name, map[string]string{"model.raw": "x"})
				f, err := os.OpenFile(filepath.Join(name, "model.raw"), os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				write(t, name, map[string]string{markerName: ""})
				hints <- struct{}{}
				time.Sleep(open)
				if got := len(commits(b)); got != 0 {
					t.Errorf("%d steps are committed while a file is open, want 0", got)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				later := min(2*open, u.cfg.QuietPeriod/4) + 2*openRetry
				time.Sleep(later)
				if got := len(commits(b)); got != 1 {
					t.Errorf("%v after the file was closed %d steps are committed, want 1; waiting %v", later, got, u.Status().Waiting)
				}
				cancel()
				<-ended
			})
		})
	}
}
