// Package nfs speaks to NFS servers without a mount: from any container, with no
// privileges, in versions 4.1 and 3.
//
//	nfs://host/exported/directory/
//	nfs://fs-0123.efs.eu-west-1.amazonaws.com/directory/?tls=true
//
// [Scheme] says which parameters there are. The path is that of version 4, which is
// one tree of all exports; on version 3 the longest part of it that the server lets
// mount is mounted. A directory that is not there has no objects and is made by the first
// write; where nothing can be made, as above all exports, Open fails and names what is
// there.
//
// # Credentials
//
// A server believes the numbers it is told (AUTH_SYS): ?uid=, ?gid= and up to 16
// groups in ?gids=, by default those of the process. Servers that squash root map uid
// 0 to nobody. Kerberos is not spoken; such a server's refusal says so.
//
// # Keys
//
// An object is a regular file, its key the path below the directory. Names may hold
// anything but "/" and a zero byte; keys that are no path ("a//b", "../a") are refused.
// Symbolic links are followed as package file does it: a relative one to a place within
// the URL's directory is, and one that leads out of it is refused, also by List, for a
// dataset that silently lacks files is worse than none. List leaves out links that lead
// nowhere or back to a directory that it is in. The URL's own directory may be a link. Where a
// link leads is believed for 30 seconds. Names that begin with .stager-tmp- and
// directories named .stager are not objects. List holds the entries of one directory and of those
// above it, about 150 bytes each.
//
// # Versions
//
// A version is the file's change counter (on version 3 its time of change), number
// and size. The attributes come with every block that is read, behind its bytes, and
// are compared; so a block is only handed on when the file was unchanged after it was
// read. Where the counter is a clock, as on version 3 and on many a version 4 server,
// two changes within one tick look like one, so Facts do not promise PinnedReads.
//
// # Writes
//
// Bytes go to a temporary file beside the final one and are made durable by COMMIT. A
// COMMIT whose verifier differs from that of a write says that the server restarted and
// may have lost it: parts are then sent again, streams begun anew. The file gets its name by RENAME,
// or by LINK where it must not replace another, which fails if the name is taken. What
// a killed writer leaves no listing shows. With IfVersion writers exclude each other by
// claim files, see [backends.Claim], which LINK creates.
//
// # When the server goes away
//
// A connection on which calls wait and nothing comes for 20 seconds is given up. Lost
// connections, sessions and client ids are made anew (package nfs4 tells how), files
// that were open are opened again by name and their versions compared.
package nfs
