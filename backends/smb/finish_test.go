package smb

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// closingFile calls before when it is closed, and closes with an error of the server if code is one.
type closingFile struct {
	openFile
	before func()
	code   uint32
}

func (c closingFile) Close() error {
	c.before()
	if err := c.openFile.Close(); err != nil || c.code == 0 {
		return err
	}
	return &os.PathError{Op: "close", Path: "k", Err: &smb2.ResponseError{Code: c.code}}
}

// closes has the temporary file of a writer closed in another way. No write may be in flight.
func closes(w any, before func(), code uint32) {
	h := w.(interface{ File() fileshare.TempFile }).File().(*handle)
	h.file = closingFile{h.file, before, code}
}

const statusDiskFull = 0xC000007F

// A server may report only at the close that data was not stored. The file was published then.
func TestErrorOfTheCloseIsReported(t *testing.T) {
	s := need(t, "plain")
	raw, prefix := openLive(t, s, "data/closed/").Backend()
	b := raw.(*Backend)
	path := filepath.Join(s.Env["SMB_DIR"], "closed", "k")
	want := []byte("whole")
	missing := func() {
		t.Helper()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the refused close the object is there, %v", err)
		}
	}
	w, err := b.Create(t.Context(), prefix+"k", backends.CreateOptions{Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	closes(w, func() {}, statusDiskFull)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what was written in order cannot be written again
		if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.NoSpace {
			t.Errorf("got %v of the commit, want kind no-space", err)
		}
	}
	missing()
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	p, err := b.CreateParts(t.Context(), prefix+"k", backends.CreateOptions{Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WritePart(t.Context(), 0, backends.NewPart(bytes.NewReader(want), 0, 5)); err != nil {
		t.Fatal(err)
	}
	closes(p, func() {}, statusDiskFull)
	if _, err := p.Commit(t.Context()); backends.KindOf(err) != backends.NoSpace {
		t.Errorf("got %v of the commit, want kind no-space", err)
	}
	missing()
	// Parts are written again: the server may have none of them.
	temp := filepath.Join(s.Env["SMB_DIR"], p.(interface{ File() fileshare.TempFile }).File().(*handle).key)
	if err := os.Truncate(temp, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Commit(t.Context()); err != nil {
		t.Errorf("got %v of the commit that is repeated, want nil", err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if err := b.Delete(t.Context(), prefix+"k"); err != nil {
		t.Error(err)
	}
}

// The caller leaves when the file is closed, before its attributes are known. Every later commit
// failed with "the file was closed".
func TestCommitContinuesAfterTheClose(t *testing.T) {
	s := need(t, "plain")
	raw, prefix := openLive(t, s, "data/again/").Backend()
	w, err := raw.(*Backend).Create(t.Context(), prefix+"k", backends.CreateOptions{Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	closes(w, leave, 0)
	if _, err := w.Write([]byte("whole")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(ctx); backends.KindOf(err) != backends.Canceled {
		t.Errorf("got %v of the commit that was left, want kind canceled", err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Errorf("got %v of the commit that is repeated, want nil", err)
	}
	if got, err := os.ReadFile(filepath.Join(s.Env["SMB_DIR"], "again", "k")); err != nil || string(got) != "whole" {
		t.Errorf("got %q, %v; want the whole file", got, err)
	}
	if err := raw.(*Backend).Delete(t.Context(), prefix+"k"); err != nil {
		t.Error(err)
	}
}

// A link to the directory that is listed was noticed one level late: each file was listed twice.
func TestListOmitsALinkToItsTop(t *testing.T) {
	s := need(t, "plain")
	for _, top := range []string{"top/", "top/deeper/"} {
		store := openLive(t, s, "data/"+top)
		if _, err := store.PutBytes(t.Context(), "a/one", nil, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(s.Env["SMB_DIR"], top)
		for link, target := range map[string]string{"up": ".", "a/up": ".."} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
		var keys, skipped []string
		ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { skipped = append(skipped, s.Key+": "+s.What) })
		for obj, err := range store.List(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, obj.Key)
		}
		if want := []string{"a/one"}; !slices.Equal(keys, want) {
			t.Errorf("%s: got keys %q, want %q", top, keys, want)
		}
		if want := []string{"a/up/: a link to a directory above it", "up/: a link to a directory above it"}; !slices.Equal(skipped, want) {
			t.Errorf("%s: got %q as skipped, want %q", top, skipped, want)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}
