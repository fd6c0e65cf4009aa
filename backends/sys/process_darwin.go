package sys

import "time"

// AdoptOrphans makes this process the parent of orphaned processes below it. On macOS the first
// process gets them.
func AdoptOrphans() {}

// ThreadTime returns the CPU time of this thread, or -1 if the kernel does not report it.
func ThreadTime() time.Duration { return -1 }
