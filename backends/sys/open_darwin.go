package sys

import "golang.org/x/sys/unix"

// ForName is the flag of open for a directory that is only needed to find names in it.
const ForName = unix.O_RDONLY
