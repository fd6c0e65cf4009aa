package sys

import "syscall"

// Errors that name the same thing on both systems.
const (
	UnlinkedDir  = syscall.EISDIR // unlink of a directory
	OpenedSocket = syscall.ENXIO  // open of a socket
	RemoteIO     = syscall.EREMOTEIO
)
