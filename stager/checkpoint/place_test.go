package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestErrorsOfPlaceNameTheFile has the file system fail after a file was opened: a person must
// learn which file it was. A restore once ended with "stager: stale file handle" and nothing more.
func TestErrorsOfPlaceNameTheFile(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(root.WriteFile("model.pt", []byte("weights"), 0o644), root.Mkdir("model", 0o755)); err != nil {
		t.Fatal(err)
	}
	p, err := openPlace(root)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	file, err := p.open("model.pt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := identityOfFile(file); err != nil {
		t.Errorf("got %v, want the identity of an open file", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	_, closed := identityOfFile(file) // fstat fails
	_, none := p.open("missing.pt")
	_, kind := p.open("model")
	_, parent := p.stat("model.pt/part")
	for name, err := range map[string]error{"model.pt": closed, "missing.pt": none, "model": kind} {
		if at := (*fs.PathError)(nil); !errors.As(err, &at) || at.Path != name {
			t.Errorf("got %v, want a *PathError of %s", err, name)
		}
	}
	if kind != nil && !strings.Contains(kind.Error(), "regular file") {
		t.Errorf("got %v, want it to say that it is no regular file", kind)
	}
	if at := (*obstacleError)(nil); !errors.As(parent, &at) || at.path != "model.pt" {
		t.Errorf("got %v, want an obstacle at model.pt", parent)
	}
}
