// Package golden compares the output of a test with a file that was reviewed. "go test -update"
// rewrites the files; review the difference before you commit it.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update means that golden files are rewritten. [File] evaluates it.
var Update = flag.Bool("update", false, "write what comes into the files of what is wanted")

// File compares got with a golden file.
func File(t testing.TB, file string, got []byte) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what comes (-want +got):\n%s", file, diff)
	}
}
