package download

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// On a file system that ignores case, as those of macOS do, --overwrite let the second of two objects
// replace the first in silence.
func TestPrefetchRefusesTwoObjectsOfOneName(t *testing.T) {
	for name, keys := range map[string][]string{
		"case":              {"d/Shard.tar", "d/shard.tar"},
		"a directory":       {"D/shard.tar", "d/shard.tar"},
		"form of an accent": {"d/\u00e9.tar", "d/e\u0301.tar"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, backends.MD5)
			for _, key := range keys {
				s.Generate(key, 1000)
			}
			dir := t.TempDir()
			cfg := Config{Store: s.store, Dir: dir, Overwrite: true, oneName: func(*disk.Dir) bool { return true }}
			_, err := Prefetch(t.Context(), cfg)
			if backends.KindOf(err) != backends.Exist || !strings.Contains(err.Error(), "ignores case") {
				t.Errorf("got %v, want an error of kind Exist about the case of names", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*/*")); len(left) > 0 {
				t.Errorf("got %q in the directory, want nothing", left)
			}
			cfg.oneName = nil // this machine's disk
			if sum, err := Prefetch(t.Context(), cfg); err != nil || sum.Files != 2 {
				t.Errorf("got %d files, %v, want both where names differ", sum.Files, err)
			}
		})
	}
}

func TestNamesakesAcceptOtherNames(t *testing.T) {
	n := newNamesakes(true)
	for _, key := range []string{"a", "b", "A/b", "ab", "a.tar"} {
		if err := n.add("/dir", key); err != nil {
			t.Error(err)
		}
	}
}
