package main

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
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
	for _, dir := range memoryGroups() {
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

// memoryGroups returns the directories of the process's groups that may limit its memory,
// and of those around them.
func memoryGroups() []string {
	roots := []string{controlGroups, filepath.Join(controlGroups, "unified"), filepath.Join(controlGroups, "memory")}
	all := slices.Clone(roots)
	text, err := os.ReadFile(ownGroups)
	if err != nil {
		return all
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok || controllers != "" && !slices.Contains(strings.Split(controllers, ","), "memory") {
			continue
		}
		in := roots[:2]
		if controllers != "" {
			in = roots[2:]
		}
		for group = filepath.Clean("/" + group); group != "/"; group = filepath.Dir(group) {
			for _, root := range in {
				all = append(all, filepath.Join(root, group))
			}
		}
	}
	return all
}
