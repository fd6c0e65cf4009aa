// Package file is a mounted directory as a store: a PersistentVolume, an NFS or EFS
// mount, a hostPath, a local disk.
//
// URLs are file:///absolute/path/. A path that names a file means that one object.
// A directory that does not exist has no objects, and is made by the first write.
//
// # Keys
//
// An object is a regular file, its key the path below the directory. Keys that are no
// such path ("a//b", "../a") are refused, and so is "a/b" where "a" is a file.
// Nothing leads out of the directory: a symbolic link to a place within it is followed,
// and one to a place outside is refused, also by List, for a dataset that silently
// lacks files is worse than none. List leaves out links that lead nowhere or back to
// a directory that it is in, sockets and devices. The directory .stager and names that
// begin with .stager-tmp- are not objects.
//
// # Versions
//
// A version is size, times of modification and change, and inode. So a file that was
// linked, or given other rights, counts as another version. Reads compare it at their
// beginning and end; a file system with coarse times may hide a change in between,
// so Facts do not promise PinnedReads. Files replaced by Create always have a new
// inode, and a reader goes on with the old one.
//
// # Writes
//
// A file is written under a temporary name beside its final one, synced, and renamed,
// or linked where it must not replace; then its directory is synced. Killed writers
// leave temporary files, which no listing shows. Delete removes directories that it
// leaves empty, as object stores have none.
//
// With IfVersion a lock of the kernel (flock) on a hidden file beside the key excludes
// other writers while the version is compared and the file renamed. The lock ends with
// its process. On a file system that is not known to be local, such as NFS, CIFS or
// FUSE, other machines may not see the lock, so writers exclude each other also by
// claim files, see [backends.Claim]. A Delete waits for neither.
//
// A mount that hangs hangs its readers: the kernel does not let go of them, and so
// the context of a call is asked only between reads.
package file
