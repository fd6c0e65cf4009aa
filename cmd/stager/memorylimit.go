package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/window/disk/memory"
)

// limitMemory makes the runtime collect garbage before the process reaches the memory limit of its
// control group, where the kernel would kill it. GOMEMLIMIT overrides it.
func limitMemory() {
	if os.Getenv(goMemLimit) != "" {
		return
	}
	if n := groupLimit(); n > 0 {
		debug.SetMemoryLimit(n - n/10) // the rest is for memory that the runtime does not count
	}
}

// goMemLimit is a variable of the Go runtime.
const goMemLimit = "GOMEMLIMIT"

// memoryLimit returns how many bytes the process may use, by GOMEMLIMIT and by its control group; 0
// if neither is set.
func memoryLimit() int64 {
	group := groupLimit()
	if os.Getenv(goMemLimit) == "" {
		return group
	}
	set := debug.SetMemoryLimit(-1)
	switch {
	case set == math.MaxInt64: // GOMEMLIMIT=off
		return group
	case group == 0:
		return set
	}
	return min(set, group)
}

// unlimited is less than the value that version 1 reports if there is no limit.
const unlimited = 1 << 60

// controlGroups is where the hierarchies of control groups are mounted, and ownGroups lists the
// groups of this process. Tests replace them.
var (
	controlGroups = "/sys/fs/cgroup"
	ownGroups     = "/proc/self/cgroup"
)

// groupLimit returns the lowest memory limit, in bytes, of the control groups that this process is
// in; 0 if there is none. In a container the process's own group is often the root of the visible
// hierarchy.
func groupLimit() int64 {
	limit := int64(math.MaxInt64)
	for _, dir := range memory.Groups(controlGroups, ownGroups) {
		for _, name := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} { // version 2, then version 1
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < unlimited {
				limit = min(limit, n)
			}
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}
