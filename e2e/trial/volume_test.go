package trial

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
)

const (
	xfsOwn  = 8 << 20 // what xfs takes for metadata, and reserves for each rename
	xfsLate = 3       // how often freed space may come too late on a busy machine
)

// onVolume gives a trial a file system of its own, and has its use sampled. It is what the trial
// wants, else what STAGER_TRIAL_VOLUME says, else ext4. xfs frees the space of removed files with a
// delay and counts it as used until then, so there the volume has no more room than the window
// needs, and judge finds in stager's log whether it met a full disk.
func onVolume(t *testing.T, cfg *Config) (judge func(log string)) {
	t.Helper()
	kind := cmp.Or(cfg.Volume, os.Getenv("STAGER_TRIAL_VOLUME"), "ext4")
	dir := filepath.Join(cfg.Work, "volume")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	live.Mount(t, kind, dir, max(2*cfg.Window+64<<20, 400<<20)) // xfs takes no less
	if kind != "xfs" {
		cfg.OwnVolume = true
		return func(string) {}
	}
	live.Fill(t, dir, cfg.Window+xfsOwn)
	return func(log string) {
		if got := strings.Count(log, unix.ENOSPC.Error()); got > xfsLate {
			t.Errorf("the volume had room for %d bytes, and was full %d times, want at most %d:\n%s", cfg.Window, got, xfsLate, log)
		}
	}
}
