package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Lease acquires a file lease of that kind, F_RDLCK or F_WRLCK, or releases it with F_UNLCK. EAGAIN
// means that another process has the file open in a way that conflicts.
func Lease(file *os.File, kind int) error {
	_, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, kind)
	return err
}
