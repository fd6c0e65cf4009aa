package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Lease acquires a file lease of that kind, F_RDLCK or F_WRLCK, or releases it with F_UNLCK. macOS
// has none: it does not report which files are open.
func Lease(*os.File, int) error { return unix.ENOTSUP }
