package checkpoint

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// A disk on which a snapshot takes half a second keeps no checkpoint waiting. The pause after a
// scan is twenty times as long as the scan, so that scans of large directories cost little, and
// the snapshots counted as scans: stager saw nothing for ten seconds, four checkpoints of a
// trainer that was killed then could not be restored yet.
func TestSlowSnapshotsDoNotDelayScans(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir, hints := mem.New(), t.TempDir(), make(chan struct{}, 1)
		u := newUploader(t, dir, b, nil)
		link := u.snapshots.hardLink
		u.snapshots.hardLink = func(oldname, newname string) error {
			time.Sleep(500 * time.Millisecond)
			return link(oldname, newname)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			u.run(ctx, hints)
		}()
		for step := range 4 {
			name := filepath.Join(dir, fmt.Sprintf("step-%d", step))
			write(t, name, map[string]string{"model.raw": "x"})
			write(t, name, map[string]string{markerName: ""})
			hints <- struct{}{}
			time.Sleep(2 * time.Second)
			if got := len(commits(b)); got != step+1 {
				t.Errorf("2 s after step %d is complete %d steps are committed, want %d", step, got, step+1)
			}
		}
		cancel()
		<-ended
	})
}
