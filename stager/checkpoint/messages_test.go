package checkpoint

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// TestUploaderLogsWhatItHandles provokes messages about the volume and the store: a checkpoint is
// saved nevertheless, and what was not done is said.
func TestUploaderLogsWhatItHandles(t *testing.T) {
	occupy := func(name string) func(string) error {
		return func(dir string) error { return os.MkdirAll(filepath.Join(dir, ".stager", name, "foreign"), 0o755) }
	}
	for _, tt := range []struct {
		want   string
		before func(dir string) error
		faults func(*conformance.Faults)
	}{
		{want: "cannot record the shapes of checkpoints, a restart learns them again", before: occupy("shapes")},
		{want: "cannot record what was saved, so it is read again after a restart", before: occupy("shipped")},
		{want: "cannot use a snapshot of an earlier process", before: occupy("snap/0011223344556677")},
		{want: "another program created a file among the snapshots, leaving it", before: func(dir string) error {
			snap := filepath.Join(dir, ".stager", "snap")
			return errors.Join(os.MkdirAll(snap, 0o755), os.WriteFile(filepath.Join(snap, "foreign"), nil, 0o600))
		}},
		{want: "cannot reach the destination yet", faults: func(f *conformance.Faults) {
			f.Add(conformance.List, conformance.Fail(backends.Unavailable))
		}},
		{want: "cannot write LATEST; restore does not need it", faults: func(f *conformance.Faults) {
			f.AddFor(conformance.Create, latestKey, conformance.Fail(backends.Permission), conformance.Fail(backends.Permission))
		}},
		{want: "cannot remove older steps now", faults: func(f *conformance.Faults) {
			f.Always(conformance.Delete, conformance.Fail(backends.Permission))
		}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				dir, b, faults := t.TempDir(), mem.New(), new(conformance.Faults)
				if tt.before != nil {
					if err := tt.before(dir); err != nil {
						t.Fatal(err)
					}
				}
				if tt.faults != nil {
					tt.faults(faults)
				}
				var said bytes.Buffer
				u := newUploader(t, dir, faults.Wrap(b), func(c *Config) {
					c.Keep, c.Log = Keep{Last: 1}, slog.New(slog.NewTextHandler(&said, nil))
				})
				for _, step := range []string{"step-1", "step-2"} {
					write(t, filepath.Join(dir, step), model(step))
					settled(t, u)
				}
				if got := commits(b); len(got) == 0 || got[len(got)-1] != "step-00000002" {
					t.Errorf("got the steps %q, want step 2 among them", got)
				}
				if got := said.String(); !strings.Contains(got, `level=WARN msg="`+tt.want) {
					t.Errorf("got the log %q, want %q", got, tt.want)
				}
			})
		})
	}
}
