package sys

import "syscall"

// Errors that name the same thing on both systems.
const (
	UnlinkedDir  = syscall.EPERM      // unlink of a directory
	OpenedSocket = syscall.EOPNOTSUPP // open of a socket
	RemoteIO     = syscall.EIO        // macOS has no error of its own for it
)
