package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A scratch file holds what was written, and has no name, with O_TMPFILE and without.
func TestScratchHasNoName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for name, create := range map[string]func() (*os.File, error){
		"unnamed from the start": func() (*os.File, error) { return Scratch(dir) },
		"its name removed": func() (*os.File, error) {
			root, err := MakeRoot(dir)
			if err != nil {
				return nil, err
			}
			defer root.Close() // opened for its name
			return Unnamed(root, "scratch")
		},
	} {
		file, err := create()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := []byte("text")
		if _, err := file.Write(want); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := file.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, want)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: the directory has %v (%v), want nothing", name, entries, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}
