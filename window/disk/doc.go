// Package disk is the directory in which stager brings files to light.
//
// A [Directory] belongs to one process at a time. What is on its way in lies under
// .stager/incoming as an [Incoming], which remembers across a kill which of its
// bytes have arrived; Publish gives it its name, by rename, so that nobody ever
// sees a file that is not whole.
//
// An [IncomingTree] is a directory of such files that comes to light as one; a [Filling]
// writes what comes out of an archive into it.
//
//	<path>/…                   what readers see
//	<path>/.stager/LOCK        held, and naming its holder
//	<path>/.stager/incoming/   files on their way, and which ranges of them came
//
// Large files may go to the disk past the page cache, see [Write].
//
// All access goes through os.Root: no name, however hostile, leads out of the
// directory. What is on disk is the truth; the ranges remembered are a hint that is
// dropped when size, version or the machine's boot differ.
package disk
