// Package disk writes files to a directory so that readers see only complete files.
//
// Open a [Dir] with [Open], create an [Incoming] in it, write the ranges that are missing,
// and call Publish, which renames the file to its final name. One process at a time owns the
// directory.
//
// An Incoming lies under .stager/incoming and records which of its bytes have been written, so that
// a fetch resumes after the process is killed. An [IncomingTree] is a directory of such files that
// is published as a unit. A [Filling] extracts an archive into it.
//
//	<path>/…                   what readers see
//	<path>/.stager/LOCK        locked; names the process that holds the lock
//	<path>/.stager/incoming/   files that are being written, and which ranges they have
//
// Large files may bypass the page cache, see [Write].
//
// All access goes through os.Root: no name, however hostile, escapes the directory. The files on
// disk are authoritative. The recorded ranges are a hint, and are dropped if the size, the version
// or the boot of the machine differs.
package disk
