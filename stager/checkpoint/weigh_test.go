package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stager-dev/stager/backends/mem"
)

// A program may write under temporary names that no list contains, and rename each file. A file
// that a scan saw under such a name was not removed. Regression: the checkpoint was said to be
// under removal until something else was written to it, so one whose last file was seen under
// such a name was never saved. Zarr writes in this way.
func TestRenamedFilesAreNotRemoved(t *testing.T) {
	const last = "optim.pt"
	for name, temporary := range map[string]string{"a known name": last + ".0a1b2c3d.partial", "an unknown name": last + ".0a1b2c3d"} {
		for _, over := range []bool{false, true} {
			for _, seen := range []string{"whole", "half"} {
				t.Run(fmt.Sprint(name, "/seen ", seen, "/over another ", over), func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						b, dir := mem.New(), t.TempDir()
						u := newUploader(t, dir, b, nil)
						at, optim := filepath.Join(dir, "step-5"), zipped(t, "optim")
						write(t, at, map[string]string{"model.pt": zipped(t, "model"), temporary: optim[:len(optim)/2]})
						if over {
							write(t, at, map[string]string{last: zipped(t, "old")})
						}
						if seen == "whole" {
							write(t, at, map[string]string{temporary: optim})
						}
						pass(t, u)
						write(t, at, map[string]string{temporary: optim})
						if err := os.Rename(filepath.Join(at, temporary), filepath.Join(at, last)); err != nil {
							t.Fatal(err)
						}
						settled(t, u)
						settled(t, u)
						want := map[string]string{"model.pt": zipped(t, "model"), last: optim}
						for _, c := range committedIn(t, b, nil) {
							if canonical(c.files) == canonical(want) {
								return
							}
						}
						t.Errorf("committed %v, want the files under their names; waiting %v", commits(b), u.Status().Waiting)
					})
				})
			}
		}
	}
}

// One of two links to a file may be removed first: the inode that is left proves no rename.
func TestRemovedLinksAreNotRenamed(t *testing.T) {
	two := []local{{Path: "a.pt", Inode: 7}, {Path: "b.pt", Inode: 7}}
	for want, now := range map[string][]local{
		"b.pt": {{Path: "a.pt", Inode: 7}},
		"a.pt": {{Path: "c.pt", Inode: 8}},
		"":     {{Path: "c.pt", Inode: 7}},
	} {
		if got := removedFrom(two, now); got != want {
			t.Errorf("of %v only %v is left: removed %q, want %q", two, now, got, want)
		}
	}
	if got := removedFrom([]local{{Path: "a.pt"}}, []local{{Path: "b.pt"}}); got != "a.pt" {
		t.Errorf("without inodes: removed %q, want a.pt", got)
	}
}
