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

// limitMemory has the runtime collect garbage before the process reaches the memory limit
// of its control group, where the kernel would kill it. GOMEMLIMIT says otherwise.
func limitMemory() {
	if os.Getenv(goMemLimit) != "" {
		return
	}
	if n := groupLimit(); n > 0 {
		debug.SetMemoryLimit(n - n/10) // the rest is for what the runtime does not count
	}
}

// goMemLimit is the runtime's own variable.
const goMemLimit = "GOMEMLIMIT"

// memoryLimit returns how many bytes the process may take, by GOMEMLIMIT and by its control
// group; 0 where neither says.
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

// unlimited is less than what version 1 says where there is no limit.
const unlimited = 1 << 60

// controlGroups is where the hierarchies of control groups are, and ownGroups which of
// them this process is in; tests have others.
var (
	controlGroups = "/sys/fs/cgroup"
	ownGroups     = "/proc/self/cgroup"
)

// groupLimit returns the least memory limit of the control groups that this process is in,
// in bytes; 0 where there is none. In a container its own group often is the root of what
// it sees.
func groupLimit() int64 {
	limit := int64(math.MaxInt64)
	for _, dir := range memory.Groups(controlGroups, ownGroups) {
		for _, name := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} { // of version 2, of version 1
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
