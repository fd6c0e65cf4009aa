package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

func TestSweepRemovesOrphans(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		Temporary + "root", "step-1/" + Temporary + "a", "step-1/deep/" + Temporary + "b", "step-1/kept",
		"step-2/" + Temporary + "under-way", "other/" + Temporary + "c", "step-3/only/" + Temporary + "d",
	} {
		p := filepath.Join(dir, "dest", name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "dest/step-4/deep/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := New(dir)
	defer b.Close()
	if err := b.Sweep(t.Context(), "dest/step-", func(r backends.Orphan) bool { return !strings.HasPrefix(r.Key, "dest/step-2/") }); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := fs.WalkDir(os.DirFS(filepath.Join(dir, "dest")), ".", func(p string, d fs.DirEntry, err error) error {
		got = append(got, p)
		return err
	})
	want := []string{
		".", Temporary + "root", "other", "other/" + Temporary + "c", "step-1", "step-1/kept", "step-2", "step-2/" + Temporary + "under-way",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("left %q (%v), want %q", got, err, want)
	}
	if err := b.Sweep(t.Context(), "nowhere/step-", func(backends.Orphan) bool { return true }); err != nil {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

func TestSweepsAfterKills(t *testing.T) {
	dir := t.TempDir()
	open := func() *backends.Store { return backends.NewStore(New(dir), "file://"+dir, backends.Options{}) }
	store := open()
	defer store.Close()
	conformance.Sweeps(t, open(), store)
}
