package window

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// On a disk that other programs had filled, the start failed because the journal could not be
// compacted: nothing freed space.
func TestStartOnAFullDiskGoesOn(t *testing.T) {
	dir := t.TempDir()
	live.Require(t, "mount", unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	defer unix.Unmount(dir, unix.MNT_DETACH) //nolint:errcheck // the machine is discarded anyway
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Dir: dir, Items: items(3, 64<<10), Size: 192 << 10, Epochs: 1})
		b.idle()
		b.ok(b.Ack(b.must(b.lease("r")).ID))
		others, err := os.Create(b.at("of-others"))
		b.ok(err)
		for err == nil {
			_, err = others.Write(make([]byte, 4096))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("got %v, want a full disk", err)
		}
		b.ok(others.Close())
		b.crash()
		b.advance(time.Second)
		l := b.must(b.lease("r"))
		if l.Pos != 1 {
			t.Errorf("got position %d, want 1", l.Pos)
		}
		b.ok(b.Ack(l.ID))
	})
}
