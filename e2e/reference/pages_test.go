package reference

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
)

// What the manual generates from the code is that of this code. STAGER_MANUAL=update writes it, as
// make reference does.
func TestPagesAreFresh(t *testing.T) {
	const source = "../.."
	if os.Getenv("STAGER_MANUAL") == "update" {
		if err := Write(source); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := Pages(source)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not that of the code; run make reference\n%s", name, diff.Diff("the file", got, "the code", want))
		}
	}
}
