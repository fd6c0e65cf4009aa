// Package golden is for tests: it compares what comes with a file that somebody has read
// and found right. With "go test -update" it writes what comes instead; read the
// difference before you commit it.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update tells that what comes is to be written. [File] does that by itself.
var Update = flag.Bool("update", false, "write what comes into the files of what is wanted")

// File compares what comes with a file.
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
