package sys

import "golang.org/x/sys/unix"

// ForName is the flag of open for a directory that is only needed to find names in it. Searching it
// takes no permission to read it.
const ForName = unix.O_PATH
