package sys

import "golang.org/x/sys/unix"

// BootID returns the id of this boot of the machine.
func BootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }
