package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/mem"
)

// memoryDir returns a directory on a file system in memory.
func memoryDir(t *testing.T) string {
	t.Helper()
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) != nil || int64(st.Type)&0xffffffff != unix.TMPFS_MAGIC {
		live.Require(t, "tmpfs", errors.New("there is none at /dev/shm"))
	}
	dir, err := os.MkdirTemp("/dev/shm", "stager-test-")
	if err != nil {
		live.Require(t, "tmpfs", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // best effort
	return dir
}

// inPlace writes to a file and resets its time.
func inPlace(p string) error {
	info, err := os.Stat(p)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte("OTHER"), 0)
	return errors.Join(err, file.Close(), os.Chtimes(p, info.ModTime(), info.ModTime()))
}

// mapped writes to a file through a mapping and resets its time.
func mapped(p string) error {
	info, err := os.Stat(p)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(p, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	page, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(page, "OTHER")
	return errors.Join(unix.Munmap(page), os.Chtimes(p, info.ModTime(), info.ModTime()))
}

// A file was overwritten in place while it was sent, and its time was reset, or the write went
// through a mapping of a file in memory. It was committed with half of its bytes from another
// moment.
func TestPushCheckpointSeesEveryWriteInPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		dir     func(t *testing.T) string
		disturb func(p string) error
		changed bool
	}{
		"overwritten, with its time":         {(*testing.T).TempDir, inPlace, true},
		"overwritten, with its time, memory": {memoryDir, inPlace, true},
		"through a mapping, with its time":   {memoryDir, mapped, true},
		"removed":                            {(*testing.T).TempDir, os.Remove, false},
		"renamed":                            {(*testing.T).TempDir, func(p string) error { return os.Rename(p, p+".old") }, false},
		"linked":                             {(*testing.T).TempDir, func(p string) error { return os.Link(p, p+".too") }, false},
		"read":                               {memoryDir, func(p string) error { _, err := os.ReadFile(p); return err }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := mem.New(), tt.dir(t)
			want := map[string]string{"model.pt": strings.Repeat("weights ", 1<<15)}
			write(t, dir, want)
			var once sync.Once
			hook := &hooked{Backend: b, onCreate: func(key string) {
				if strings.HasSuffix(key, "/model.pt") {
					once.Do(func() {
						if err := tt.disturb(filepath.Join(dir, "model.pt")); err != nil {
							t.Error(err)
						}
					})
				}
			}}
			_, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(hook), Path: dir, Step: 1})
			if tt.changed {
				if got := commits(b); backends.KindOf(err) != backends.Changed || len(got) > 0 {
					t.Errorf("got %v and committed %v, want an error of kind changed and no commit", err, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, files := restoreNewest(t, b)
			equal(t, "restored", files, want)
		})
	}
}

// If the kernel cannot watch and the change time moved, the file is read again.
func TestSteadyComparesWhereTheKernelCannotTell(t *testing.T) {
	for name, tt := range map[string]struct {
		dir     func(t *testing.T) string
		disturb func(p string) error
		reads   bool
		changed bool
	}{
		"nothing":             {(*testing.T).TempDir, func(string) error { return nil }, false, false},
		"nothing, memory":     {memoryDir, func(string) error { return nil }, true, false},
		"linked":              {(*testing.T).TempDir, func(p string) error { return os.Link(p, p+".too") }, true, false},
		"overwritten":         {(*testing.T).TempDir, inPlace, true, true},
		"through a mapping":   {memoryDir, mapped, true, true},
		"overwritten, memory": {memoryDir, inPlace, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := filepath.Join(tt.dir(t), "f")
			text := strings.Repeat("weights ", 1<<10)
			if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			s, err := beginSteady(file, describe("f", info))
			if err != nil {
				t.Fatal(err)
			}
			s.close()
			s.watch = nil
			h := backends.CRC64NVME.New()
			fmt.Fprint(h, text)
			sum := backends.SumOf(backends.CRC64NVME, h)
			if err := tt.disturb(p); err != nil {
				t.Fatal(err)
			}
			read := false
			err = s.end(func() (bool, error) {
				read = true
				return sameBytes(context.Background(), file, info.Size(), sum)
			})
			if read != tt.reads || (backends.KindOf(err) == backends.Changed) != tt.changed || !tt.changed && err != nil {
				t.Errorf("read again: %t, with %v; want %t and changed: %t", read, err, tt.reads, tt.changed)
			}
		})
	}
}

// One kernel watch serves two names of one file. It ends with the last of both, and each file
// reports only its own writes.
func TestWriteWatchesTellFilesApart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "bytes of a", "b": "bytes of b"})
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "a2")); err != nil {
		t.Fatal(err)
	}
	var all writeWatches
	watches := make(map[string]*writeWatch)
	for _, name := range []string{"a", "a2", "b"} {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if watches[name], err = all.watch(file); err != nil {
			t.Fatal(err)
		}
	}
	watches["a2"].close()
	if err := inPlace(filepath.Join(dir, "a2")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a": true, "b": false} {
		if got, known := watches[name].written(); got != want || !known {
			t.Errorf("%s was written to: got %t (known: %t), want %t", name, got, known, want)
		}
	}
	watches["a"].close()
	watches["b"].close()
	if len(all.files) != 0 {
		t.Errorf("got %d files that are still watched, want none", len(all.files))
	}
	if err := unix.Close(all.fd); err != nil {
		t.Error(err)
	}
}
