package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommitHookChecksSubjects(t *testing.T) {
	for subject, want := range map[string]bool{
		"window: free leases when their connection ends":  true,
		"api, download: write messages in plain English":  true,
		"e2e/cluster: write step 2 only if step 1 exists": true,
		"README: explain the window":                      true,
		"window: seed the shuffle":                        true,
		"Merge branch 'main' into x":                      true,
		"fixup! window: free leases":                      true,
		"free leases":                                     false,
		"Window: free leases":                             false,
		"window free leases":                              false,
		"window: Free leases":                             false,
		"window: freed leases":                            false,
		"window: freeing leases":                          false,
		"window: free leases.":                            false,
		"window: " + strings.Repeat("x", 65):              false,
	} {
		file := filepath.Join(t.TempDir(), "COMMIT_EDITMSG")
		if err := os.WriteFile(file, []byte("# a comment\n"+subject+"\n\nA reason.\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("../.githooks/commit-msg", file).CombinedOutput()
		if got := err == nil; got != want {
			t.Errorf("%q: got accepted %t, want %t\n%s", subject, got, want, out)
		}
		if err != nil && !strings.Contains(string(out), subject) {
			t.Errorf("%q: the message does not quote the subject: %s", subject, out)
		}
	}
}
