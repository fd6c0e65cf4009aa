package download

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/window/disk"
)

// must fails the test at once if there is an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// keeps checks that a file still has its contents.
func keeps(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %d bytes that begin with %q (%v), want %q", filepath.Base(path), len(got), got[:min(len(got), 20)], err, want)
	}
}

// A user saved a file with the name of an object while a prefetch ran: it was silently replaced.
func TestPrefetchKeepsAFileThatAppearedMeanwhile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"link":      func(path string) error { return os.Symlink("/etc/hosts", path) },
		"FIFO":      func(path string) error { return unix.Mkfifo(path, 0o666) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		for when, op := range map[string]conformance.Op{"at the gate": conformance.List, "after it": conformance.Read} {
			t.Run(name+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSource(t, backends.CRC64NVME)
					s.Generate("sub/b", 10_000)
					dir := t.TempDir()
					path := filepath.Join(dir, "sub", "b")
					s.faults.Add(op, conformance.Meanwhile(1, func() {
						synctest.Wait() // everything else is done
						must(t, os.MkdirAll(filepath.Dir(path), 0o755), put(path))
					}))
					_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
					if backends.KindOf(err) != backends.Exist || !strings.Contains(fmt.Sprint(err), `"sub/b"`) {
						t.Errorf("got %v, want an error of kind Exist that names sub/b", err)
					}
					info, err := os.Lstat(path)
					must(t, err)
					if name == "file" {
						keeps(t, path, "mine")
					} else if info.Mode().IsRegular() {
						t.Errorf("got %v, want what was put there", info.Mode())
					}
					_, err = Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Overwrite: true})
					if (err == nil) != (name != "directory") {
						t.Errorf("overwrite: got %v", err)
					}
				})
			})
		}
	}
}

// A user changed a file that an earlier run wrote and the source has replaced, after the listing
// had ended.
func TestPrefetchKeepsAFileThatChangedMeanwhile(t *testing.T) {
	for when, op := range map[string]conformance.Op{"at the gate": conformance.List, "after it": conformance.Read} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t, backends.CRC64NVME)
				s.Generate("b", 10_000)
				dir := t.TempDir()
				_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
				must(t, err)
				s.Put("b", []byte("newer"))
				s.faults.Add(op, conformance.Meanwhile(1, func() {
					synctest.Wait()
					must(t, os.WriteFile(filepath.Join(dir, "b"), []byte("mine"), 0o600))
				}))
				_, err = Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
				if backends.KindOf(err) != backends.Exist {
					t.Errorf("got %v, want an error of kind Exist", err)
				}
				keeps(t, filepath.Join(dir, "b"), "mine")
			})
		})
	}
}

// shards returns a source with two shards of one size and modification time.
func shards(t *testing.T, sum backends.Algorithm) (s *source, dir string) {
	s = newSource(t, sum)
	s.Generate("a", 5000)
	s.Generate("b", 5000)
	dir = t.TempDir()
	_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
	must(t, err)
	return s, dir
}

// timeOf sets the time of a file to that of an object.
func timeOf(t *testing.T, s *source, key, path string) {
	t.Helper()
	obj, err := s.Stat(t.Context(), key)
	must(t, err, os.Chtimes(path, time.Time{}, obj.ModTime))
}

// Another user replaced a shard by one with the same size and time, or changed bytes and restored
// the time: the record took both for files that it had written.
func TestPrefetchRecognizesOnlyItsOwnFiles(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, s *source, dir string){
		"exchanged": func(t *testing.T, s *source, dir string) {
			at := func(name string) string { return filepath.Join(dir, name) }
			must(t, os.Rename(at("a"), at("c")), os.Rename(at("b"), at("a")), os.Rename(at("c"), at("b")))
			timeOf(t, s, "a", at("a"))
			timeOf(t, s, "b", at("b"))
		},
		"changed, with its time set back": func(t *testing.T, s *source, dir string) {
			file, err := os.OpenFile(filepath.Join(dir, "a"), os.O_WRONLY, 0)
			must(t, err)
			_, err = file.WriteAt([]byte("changed"), 100)
			must(t, err, file.Close())
			timeOf(t, s, "a", filepath.Join(dir, "a"))
		},
		"of somebody else, without a record": func(t *testing.T, s *source, dir string) {
			path := filepath.Join(dir, "a")
			must(t, os.RemoveAll(filepath.Join(dir, disk.Private)), os.Remove(path), os.WriteFile(path, bytes.Repeat([]byte("x"), 5000), 0o644))
			timeOf(t, s, "a", path)
		},
	} {
		for _, sum := range []backends.Algorithm{backends.CRC64NVME, ""} {
			t.Run(name+" "+string(sum), func(t *testing.T) {
				s, dir := shards(t, sum)
				spoil(t, s, dir)
				before, err := os.ReadFile(filepath.Join(dir, "a"))
				must(t, err)
				summary, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
				if backends.KindOf(err) != backends.Exist || !strings.Contains(fmt.Sprint(err), "different bytes") {
					t.Errorf("got %v with %d warm files, want an error of kind Exist", err, summary.WarmFiles)
				}
				keeps(t, filepath.Join(dir, "a"), string(before))
				_, err = Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Overwrite: true})
				must(t, err)
				holds(t, dir, "a", 5000)
				holds(t, dir, "b", 5000)
			})
		}
	}
}

// A file whose owner was changed, or that was copied with its time, is read once.
func TestPrefetchReadsUnknownFilesOnce(t *testing.T) {
	for _, sum := range []backends.Algorithm{backends.CRC64NVME, ""} {
		s, dir := shards(t, sum)
		path := filepath.Join(dir, "a")
		text, err := os.ReadFile(path)
		must(t, err, os.Remove(path), os.WriteFile(path, text, 0o644), os.Link(filepath.Join(dir, "b"), filepath.Join(dir, "b.link")))
		timeOf(t, s, "a", path)
		for i, reads := range []int{2, 0} {
			if sum != "" {
				reads = 0 // the store's checksum suffices
			}
			before, asked := s.calls(conformance.Read), s.calls(conformance.Stat)
			summary, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
			if err != nil || summary.WarmFiles != 2 || summary.Files != 2 {
				t.Errorf("got %d files, %d of them warm (%v), want 2", summary.Files, summary.WarmFiles, err)
			}
			if got := s.calls(conformance.Read) - before; got != reads {
				t.Errorf("run %d read %d times, want %d", i, got, reads)
			}
			if got := s.calls(conformance.Stat) - asked; i == 1 && got != 0 {
				t.Errorf("the second run asked %d times, want 0", got)
			}
		}
	}
	// If only sizes are compared, files that no run has written are not read.
	s, dir := shards(t, "")
	must(t, os.RemoveAll(filepath.Join(dir, disk.Private)))
	before := s.calls(conformance.Read)
	if summary, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Verify: VerifySize}); err != nil || summary.WarmFiles != 2 || s.calls(conformance.Read) != before {
		t.Errorf("by size: got %d warm files (%v) and %d reads, want 2 and 0", summary.WarmFiles, err, s.calls(conformance.Read)-before)
	}
}

// If another kind of file had the name of one of stager's own files, a prefetch blocked on a FIFO,
// or wrote its list of objects to the target of a link.
func TestPrefetchOpensOnlyRecordsOfItsOwn(t *testing.T) {
	const secret = "of somebody else"
	for _, name := range []string{"prefetch.jsonl", "prefetch.jsonl.next", "prefetch.spool", "LOCK", "incoming"} {
		for kind, put := range map[string]func(path, victim string) error{
			"link":   func(path, victim string) error { return os.Symlink(victim, path) },
			"FIFO":   func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
			"socket": func(path, _ string) error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) },
			"hard link": func(path, victim string) error {
				if strings.HasSuffix(path, "incoming") {
					return os.Symlink(filepath.Dir(victim), path)
				}
				return os.Link(victim, path)
			},
			"hole": func(path, _ string) error {
				return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30))
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				s := newSource(t, backends.CRC64NVME)
				sizes := few(s)
				dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
				must(t, os.WriteFile(victim, []byte(secret), 0o600), os.Mkdir(filepath.Join(dir, disk.Private), 0o755), put(filepath.Join(dir, disk.Private, name), victim))
				for _, warm := range []int{0, len(sizes)} {
					summary, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
					if err != nil || summary.Files != len(sizes) || summary.WarmFiles != warm {
						t.Errorf("got %d files, %d of them warm (%v), want %d, %d", summary.Files, summary.WarmFiles, err, len(sizes), warm)
					}
				}
				for key, size := range sizes {
					holds(t, dir, key, size)
				}
				keeps(t, victim, secret)
				if names, err := os.ReadDir(filepath.Dir(victim)); err != nil || len(names) != 1 {
					t.Errorf("beside the victim there is %v (%v), want nothing", names, err)
				}
			})
		}
	}
}

// A user's file in the directory of an archive was removed with the directory when the archive had
// changed at its source.
func TestUnpackKeepsFilesThatAppearedMeanwhile(t *testing.T) {
	for when, op := range map[string]conformance.Op{"in the directory": conformance.Read, "its name": conformance.List} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t, backends.CRC64NVME)
				s.Put("a.tar", packTar(t, map[string]string{"x": "1"}))
				dir := t.TempDir()
				if op == conformance.Read {
					_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Unpack: true})
					must(t, err)
					s.Put("a.tar", packTar(t, map[string]string{"x": "2"}))
				}
				s.faults.Add(conformance.Read, conformance.Meanwhile(1, func() {
					synctest.Wait()
					must(t, os.MkdirAll(filepath.Join(dir, "a"), 0o755), os.WriteFile(filepath.Join(dir, "a", "mine"), []byte("mine"), 0o600))
				}))
				_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Unpack: true})
				if backends.KindOf(err) != backends.Exist {
					t.Errorf("got %v, want an error of kind Exist", err)
				}
				keeps(t, filepath.Join(dir, "a", "mine"), "mine")
				if op == conformance.Read {
					keeps(t, filepath.Join(dir, "a", "x"), "1")
				}
			})
		})
	}
}
