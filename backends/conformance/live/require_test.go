package live_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestRequire(t *testing.T) {
	skipped := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(live.EnvRequire, "s3,smb")
	t.Setenv(live.EnvSkipped, skipped)
	for name, want := range map[string]outcome{"s3": "failed", "nfs": "skipped"} {
		var got outcome
		live.Require(&got, name, errors.New("no server,\nnowhere"))
		if got != want {
			t.Errorf("Require(%s) = %q, want %q", name, got, want)
		}
	}
	var none outcome
	if live.Require(&none, "s3", nil); none != "" {
		t.Errorf("Require without an error = %q, want nothing", none)
	}
	got, err := os.ReadFile(skipped)
	if want := "nfs: no server,; nowhere\n"; string(got) != want || err != nil {
		t.Errorf("what was skipped = %q, %v; want %q", got, err, want)
	}
}

// outcome is how a test ended.
type outcome string

func (*outcome) Helper() {}

func (o *outcome) Fatal(...any) { *o += "failed" }

func (o *outcome) Skip(...any) {
	if *o == "" {
		*o = "skipped"
	}
}
