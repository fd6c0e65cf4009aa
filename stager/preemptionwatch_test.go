package stager

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/plan"
)

// The drain starts at a notice, and the log says so, also where no file can tell the trainer.
func TestPreemptionIsLogged(t *testing.T) {
	dir := t.TempDir()
	notice := filepath.Join(dir, "notice")
	if err := os.WriteFile(notice, []byte("TRUE"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	d := New(Config{
		Plan: &plan.StagePlan{}, Socket: filepath.Join(dir, "none", "s"), Preemption: notice,
		Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	d.onPreemption(t.Context())
	select {
	case <-d.drain:
	default:
		t.Error("the drain has not started")
	}
	for _, want := range []string{"preemption notice received", "cannot write the notice file for the trainer"} {
		if got := said.String(); !strings.Contains(got, `level=WARN msg="`+want) {
			t.Errorf("got the log %q, want %q", got, want)
		}
	}
}
