package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// A path through a descriptor led to a directory without a path of its own, and the files were
// written below the root of the machine.
func TestOpenFollowsLinksOfTheKernel(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	live.Require(t, "mount", err)
	defer unix.Close(fd)
	f, err := Open(fmt.Sprintf("/proc/self/fd/%d/model/data", fd), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := os.Stat(filepath.Join(dir, "model/data/"+Private)); err != nil || !info.IsDir() {
		t.Errorf("got %v (%v), want the directory of stager's own there", info, err)
	}
}
