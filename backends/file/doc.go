// Package file implements a store in a mounted directory: a PersistentVolume, an NFS or EFS mount,
// a hostPath or a local disk. Register it with [Scheme], or open a directory directly with [New].
//
// URLs have the form file:///absolute/path/. A path that names a file means that single object. A
// directory that does not exist contains no objects; the first write creates it.
//
// # Keys
//
// An object is a regular file. Its key is its path relative to the directory. Keys that are not
// such a path ("a//b", "../a") are rejected, and so is "a/b" if "a" is a file. Nothing leads out of
// the directory. A symbolic link to a target inside is followed. A link to a target outside is an
// error, also in List, because a dataset that silently lacks files is worse than none. List omits
// dangling links, links back to a parent directory, sockets and devices. The directory .stager and
// names that begin with .stager-tmp- are not objects.
//
// # Versions
//
// A version consists of size, modification time, change time and inode. So a file that was linked
// or whose mode changed counts as another version. Reads compare the version at their beginning and
// end. A file system with coarse timestamps may hide a change in between, so Capabilities do not
// claim PinnedReads. A file replaced by Create always has a new inode, and an open reader continues
// with the old one.
//
// # Writes
//
// A file is written under a temporary name beside its final one, synced, and renamed, or linked if
// it must not replace another. Then its directory is synced. Killed writers leave temporary files,
// which no listing shows. Delete removes directories that become empty, because object stores have
// none.
//
// With IfVersion, a kernel lock (flock) on a hidden file beside the key excludes other writers
// while the version is compared and the file renamed. The lock ends with its process. On a file
// system that is not known to be local, such as NFS, CIFS or FUSE, other machines may not see the
// lock. There, writers also exclude each other with claim files, see [backends.Claim]. Delete waits
// for neither.
//
// A hung mount blocks its readers in the kernel, which cannot be interrupted. So the context of a
// call is checked only between reads.
package file
