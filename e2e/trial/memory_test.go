package trial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// limited is a directory of the kernel's in which processes have so many bytes of memory,
// page cache and all, as those of a container have.
type limited struct{ dir string }

// limit makes one, of either version of control groups.
func limit(t *testing.T, bytes int64) (limited, error) {
	file, root := "memory.max", "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		file, root = "memory.limit_in_bytes", root+"/memory"
	}
	l := limited{filepath.Join(root, fmt.Sprintf("stager-test-%d", os.Getpid()))}
	if err := os.Mkdir(l.dir, 0o755); err != nil {
		return l, err
	}
	t.Cleanup(func() {
		if err := os.Remove(l.dir); err != nil {
			t.Error(err)
		}
	})
	return l, os.WriteFile(filepath.Join(l.dir, file), []byte(strconv.FormatInt(bytes, 10)), 0o644)
}

// killed is how many processes in it the kernel has ended for want of memory.
func (l limited) killed(t *testing.T) (n int) {
	t.Helper()
	var tried error
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		text, err := os.ReadFile(filepath.Join(l.dir, name))
		tried = errors.Join(tried, err)
		for line := range strings.Lines(string(text)) {
			if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
				return n
			}
		}
	}
	t.Fatalf("how many were killed is not told: %v", tried)
	return 0
}

// In 64 MiB stager has to live beside the page cache of what it moves, and the kernel's
// buffers for its connections: a push and a prefetch may take longer, and end.
func TestMemoryOf64MiBIsEnough(t *testing.T) {
	group, err := limit(t, 64<<20)
	live.Require(t, "cgroup", err)
	binary, s3 := build(t), anS3(t)
	source, dst := t.TempDir(), t.TempDir()
	for i := range 4 {
		if err := writeNoise(filepath.Join(source, fmt.Sprintf("big/%d.tar", i)), 48<<20); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if err := writeNoise(filepath.Join(source, fmt.Sprintf("small/%d.jpg", i)), int64(40_000+i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"push", source, s3.url("data")},
		{"prefetch", s3.url("data"), dst},
		{"prefetch", "--write", "buffered", s3.url("data"), dst + "2"},
		{"prefetch", "--connections", "512", s3.url("data"), dst + "3"}, // it was killed
		{"push", "--connections", "512", source, s3.url("data2")},
	} {
		t.Cleanup(func() { _ = errors.Join(os.RemoveAll(dst+"2"), os.RemoveAll(dst+"3")) })
		cmd := s3.command(t, "sh", append([]string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group.dir, binary}, args...)...)
		m, err := measure(cmd, 0, nil)
		if err != nil || m.exit != 0 || group.killed(t) != 0 {
			t.Errorf("%s: %v, exit %d, %d killed for want of memory; want 0 and none\n%s", args[0], err, m.exit, group.killed(t), m.log)
		}
		t.Logf("%q: %s", args[:len(args)-2], m)
	}
}
