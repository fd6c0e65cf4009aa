package live

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance"
)

// Plant writes objects of these sizes into a new directory below one that a server serves, with the
// contents of [conformance.ContentsOf], and returns the directory. It is for servers of protocols
// that cannot write.
func Plant(t testing.TB, served string, sizes map[string]int64, modified time.Time) string {
	t.Helper()
	dir := filepath.Join(served, "t-"+rand.Text())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask: the server has another user
		t.Fatal(err)
	}
	for key, size := range sizes {
		path := filepath.Join(dir, key)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		PlantFile(t, path, conformance.ContentsOf(key, size).Bytes(), modified)
	}
	return dir
}

// PlantFile writes one file with a modification time.
func PlantFile(t testing.TB, path string, contents []byte, modified time.Time) {
	t.Helper()
	if err := os.WriteFile(path, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
}
