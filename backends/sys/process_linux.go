package sys

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// AdoptOrphans makes this process the parent of orphaned processes below it. If that fails, another
// process gets them.
func AdoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// ThreadTime returns the CPU time of this thread, or -1 if the kernel does not report it.
func ThreadTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return -1
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// ProcessorTime returns the CPU time that this process has used and that all CPUs of the machine have been idle, or
// negative values if the kernel does not report them. The resolution of idle is 10ms.
func ProcessorTime() (used, idle time.Duration) {
	used, idle = -1, -1
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		used = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if text, err := os.ReadFile("/proc/uptime"); err == nil {
		_, second, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if seconds, err := strconv.ParseFloat(second, 64); err == nil {
			idle = time.Duration(seconds * float64(time.Second))
		}
	}
	return used, idle
}
