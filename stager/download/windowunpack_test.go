package download

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

func TestWindowUnpacksWithinItsRoom(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	small := map[string]string{}
	for _, name := range []string{"a", "b", "c/d", "c/e"} {
		small[name] = "x"
	}
	objects := []backends.Object{
		s.put(t, "good.tar", packTar(t, small)),
		s.put(t, "bomb.tar.gz", squeeze(t, packTar(t, map[string]string{"zeros": strings.Repeat("\x00", mib)}))),
		s.put(t, "many.tar.gz", squeeze(t, packTar(t, small))),
		s.put(t, "up.tar", packTar(t, map[string]string{"../x": ""})),
		s.put(t, "cut.tar", packTar(t, small)[:600]),
		s.put(t, "empty.zip", packZip(t, nil)),
	}
	w := NewWindow([]From{{s.store, len(objects)}}, plan.Manifest{Objects: plan.List(objects)}, VerifyAuto)
	w.Unpack(func(obj backends.Object) int64 {
		if strings.HasSuffix(obj.Key, ".gz") {
			return 3 * disk.Block
		}
		return 4*disk.Block + disk.DirRoom
	})
	dir := t.TempDir()
	f := directory(t, dir)
	for item, words := range []string{
		"", "exceed the 12288 bytes that the window reserved", "raise window.expand", `"../x" is refused`, "damaged", "it contains no files",
	} {
		in, err := f.IncomingTree(objects[item].Key, "")
		if err != nil {
			t.Fatal(err)
		}
		err = w.FetchTree(t.Context(), item, in)
		st, serr := in.Stat()
		if serr != nil || st.Room > 4*disk.Block {
			t.Errorf("%s: %+v (%v) lies there", objects[item].Key, st, serr)
		}
		if words == "" {
			if err != nil || st.Files != 4 || st.Room != 4*disk.Block {
				t.Errorf("%s: got %v and %+v", objects[item].Key, err, st)
			}
			if err := in.Publish("shown"); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(filepath.Join(dir, "shown/c/d")); err != nil || info.Mode().Perm() != 0o444 {
				t.Errorf("a file of it is %v (%v), want 0444", info, err)
			}
			continue
		}
		if !errors.Is(err, window.ErrCorrupt) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %q", objects[item].Key, err, words)
		}
		if unusable, ok := errors.AsType[*UnusableError](err); !ok || unusable.Damaged != (words == "damaged") {
			t.Errorf("%s: got %v, want an UnusableError that says whether it is damaged", objects[item].Key, err)
		}
	}
}
