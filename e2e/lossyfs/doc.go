// Package lossyfs is a file system in memory for tests, mounted by FUSE. It records each
// change that programs make, builds the states in which a loss of power after any of them
// may leave a disk, and fails calls on request.
//
// What was not synced may be lost or kept, the bytes of each file and the names in each
// directory on their own: a sync of a file makes its bytes and attributes durable, that of a
// directory its names. A rename is never half done. This is less than ext4 and xfs promise,
// which write names in order, and what POSIX promises.
package lossyfs
