package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// groupsOf creates the control groups of a test: a file in place of /proc/self/cgroup, and limits
// by path.
func groupsOf(t *testing.T, own string, limits map[string]string) {
	t.Helper()
	dir := t.TempDir()
	before, ownBefore := controlGroups, ownGroups
	t.Cleanup(func() { controlGroups, ownGroups = before, ownBefore })
	controlGroups, ownGroups = filepath.Join(dir, "sys"), filepath.Join(dir, "own")
	if err := os.WriteFile(ownGroups, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range limits {
		name = filepath.Join(controlGroups, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const none = "9223372036854771712\n" // "no limit" in version 1

// The sidecar was killed for its memory use: the runtime did not know the limit of its control
// group, and garbage exceeded it.
func TestMemoryLimitIsThatOfTheControlGroup(t *testing.T) {
	for _, tt := range []struct {
		name, own string
		limits    map[string]string
		want      int64
	}{
		{"version 2 in a container", "0::/\n", map[string]string{"memory.max": "67108864\n", "memory.high": "max\n"}, 64 << 20},
		{"version 2 without limit", "0::/\n", map[string]string{"memory.max": "max\n"}, 0},
		{"the high mark counts", "0::/\n", map[string]string{"memory.max": "67108864\n", "memory.high": "33554432\n"}, 32 << 20},
		{"version 2 on a host", "0::/a.slice/b.scope\n", map[string]string{"a.slice/b.scope/memory.max": "max\n", "a.slice/memory.max": "134217728\n"}, 128 << 20},
		{"the innermost is the least", "0::/a/b\n", map[string]string{"a/b/memory.max": "67108864\n", "a/memory.max": "134217728\n"}, 64 << 20},
		{"another's group does not count", "0::/a\n", map[string]string{"b/memory.max": "67108864\n"}, 0},
		{"version 1 in a container", "4:memory:/pods/x\n", map[string]string{"memory/memory.limit_in_bytes": "134217728\n"}, 128 << 20},
		{"version 1 on a host", "3:cpu,memory:/job\n0::/\n", map[string]string{"memory/memory.limit_in_bytes": none, "memory/job/memory.limit_in_bytes": "67108864\n"}, 64 << 20},
		{"version 1 without limit", "4:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": none}, 0},
		{"another controller's group", "4:pids:/a\n", map[string]string{"memory/a/memory.limit_in_bytes": "67108864\n"}, 0},
		{"neither", "", nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(goMemLimit, "")
			groupsOf(t, tt.own, tt.limits)
			if got := memoryLimit(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
			before := debug.SetMemoryLimit(-1)
			defer debug.SetMemoryLimit(before)
			debug.SetMemoryLimit(math.MaxInt64)
			limitMemory()
			soft := int64(math.MaxInt64)
			if tt.want != 0 {
				soft = tt.want - tt.want/10
			}
			if got := debug.SetMemoryLimit(-1); got != soft {
				t.Errorf("got the soft limit %d, want %d", got, soft)
			}
		})
	}
}

// A limit set by the user is kept, and used if it is the lower one.
func TestMemoryLimitOfTheUserStands(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for set, want := range map[int64]int64{16 << 20: 16 << 20, 128 << 20: 64 << 20, math.MaxInt64: 64 << 20} {
		t.Setenv(goMemLimit, "set") // read by the runtime at start
		debug.SetMemoryLimit(set)
		groupsOf(t, "0::/\n", map[string]string{"memory.max": "67108864\n"})
		limitMemory()
		if got := debug.SetMemoryLimit(-1); got != set {
			t.Errorf("the user's %d: got %d, want it to stand", set, got)
		}
		if got := memoryLimit(); got != want {
			t.Errorf("the user's %d: got the limit %d, want %d", set, got, want)
		}
	}
}
