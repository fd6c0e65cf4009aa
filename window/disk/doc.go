// Package disk writes files to a directory so that readers see only complete files.
//
// Open a [Dir], write the missing ranges of an [Incoming], and publish it, which renames the file to
// its final name (error checks omitted):
//
//	dir, err := disk.Open("/scratch/data", "my job")
//	in, err := dir.Incoming("s3://bucket/key", size, etag)
//	for _, r := range in.Missing() {
//		// fetch the range r, and call in.WriteAt
//	}
//	err = in.Publish("shard-0001.tar", 0o444, time.Time{})
//
// One process at a time owns a directory; see [BusyError].
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
