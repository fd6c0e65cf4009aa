package sys

import "time"

// AdoptOrphans makes this process the parent of orphaned processes below it. On macOS the first
// process gets them.
func AdoptOrphans() {}

// ThreadTime returns the CPU time of this thread, or -1 if the kernel does not report it.
func ThreadTime() time.Duration { return -1 }

// ProcessorTime returns the CPU time that this process has used and that all CPUs of the machine have been idle, or
// negative values if the kernel does not report them.
func ProcessorTime() (used, idle time.Duration) { return -1, -1 }
