package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// In a directory in which others may write, a link replaced a directory in the path. Stager
// followed it, and wrote where only stager can.
func TestOpenFollowsNoLinkOutOfASharedDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		mode fs.FileMode // of the volume
		link string      // in the volume, relative to it or to the test's directory
		path string      // below the volume
		want string      // where the file must be; "": nowhere
	}{
		"out of a shared one":          {0o777, "outside", "model/data", ""},
		"of the last name":             {0o777, "outside", "model", ""},
		"of a group":                   {0o775, "outside", "model/data", ""},
		"within a shared one":          {0o777, "vol/other", "model/data", "vol/other/data"},
		"out of one's own":             {0o755, "outside", "model/data", "outside/data"},
		"out of a sticky one":          {0o777 | fs.ModeSticky, "outside", "model/data", "outside/data"},
		"to a shared one from outside": {0o755, "shared/deep", "model/data", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			for _, name := range []string{"vol/other", "outside", "shared"} {
				if err := os.MkdirAll(at(name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			to, err := filepath.Rel(at("vol"), at(tt.link))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Symlink(to, at("vol/model")), os.Symlink("../outside", at("shared/deep")), os.Chmod(at("shared"), 0o777), os.Chmod(at("vol"), tt.mode)); err != nil {
				t.Fatal(err)
			}
			f, err := Open(at("vol/"+tt.path), "test")
			var leads *OutsideError
			switch {
			case tt.want == "" && !errors.As(err, &leads):
				t.Errorf("got %v, want an OutsideError", err)
			case tt.want != "" && err != nil:
				t.Errorf("got %v, want it opened", err)
			}
			if err != nil {
				if left, err := os.ReadDir(at("outside")); err != nil || len(left) > 0 {
					t.Errorf("outside there is %v (%v), want nothing", left, err)
				}
				return
			}
			defer f.Close()
			in, err := f.Incoming("a", 0, "")
			if err == nil {
				err = in.Publish("a", 0o644, time.Time{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(at(tt.want + "/a")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A FIFO had the name of a directory: a restore blocked until a process would write to it.
func TestReadDirWaitsForNoFIFO(t *testing.T) {
	plant(t, "shop", func(t *testing.T, _ string, root *os.Root, _ string) {
		if entries, err := ReadDir(root, "shop"); err == nil && len(entries) > 0 {
			t.Errorf("got %v, want an error or nothing", entries)
		}
	})
}

// The directory of a running stager was renamed and replaced by a link.
func TestDirFollowsItsInode(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.MkdirAll(at("vol/model"), 0o755), os.Mkdir(at("outside"), 0o755)); err != nil {
		t.Fatal(err)
	}
	f, err := Open(at("vol/model/data"), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(os.Rename(at("vol/model"), at("vol/aside")), os.Symlink("../outside", at("vol/model")), os.Rename(at("vol/aside/data/.stager"), at("vol/aside/data/other")), os.Symlink("../../../outside", at("vol/aside/data/.stager"))); err != nil {
		t.Fatal(err)
	}
	in, err := f.Incoming("a", 3, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	if err := in.Publish("sub/a", 0o644, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceSmall(f.Private(), "record", []byte("x"), 0o644, false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vol/aside/data/sub/a", "vol/aside/data/other/record"} {
		if _, err := os.Lstat(at(name)); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(at("outside")); err != nil || len(left) > 0 {
		t.Errorf("outside there is %v (%v), want nothing", left, err)
	}
}

// Another program replaced an incoming file, and its file was published instead.
func TestPublishRenamesTheWrittenFile(t *testing.T) {
	for _, seal := range []bool{false, true} {
		dir := t.TempDir()
		f, err := Open(dir, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in, err := f.Incoming("a", 3, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.WriteAt([]byte("abc"), 0); err != nil {
			t.Fatal(err)
		}
		swap := func() {
			path := filepath.Join(dir, incomingDir, incomingName("a"))
			if err := errors.Join(os.Rename(path, path+".aside"), os.WriteFile(path, []byte("xyz"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if seal {
			ino, serr := in.Seal(0o644, time.Time{})
			if serr != nil {
				t.Fatal(serr)
			}
			swap()
			_, err = f.PublishSealed("a", "a", 3, ino, nil)
		} else {
			swap()
			_, err = in.PublishNew("a", 0o644, time.Time{}, nil)
		}
		var changed *ChangedError
		if !errors.As(err, &changed) {
			t.Errorf("got %v, want a ChangedError", err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want no file of that name", err)
		}
	}
}

// Another user had created .stager, with forged records and incoming files.
func TestOpenRefusesThePrivateDirectoryOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		live.Require(t, "root", errors.New("only root can make directories of other users"))
	}
	for _, name := range []string{Private, incomingDir} {
		dir := t.TempDir()
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, name), 0o755), os.Lchown(filepath.Join(dir, name), 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if f, err := Open(dir, "test"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: got %v, want an error that is fs.ErrPermission", name, err)
			f.Close()
		}
	}
}
