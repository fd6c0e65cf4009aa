// Package nfs reads and writes objects on NFS servers, in versions 4.1 and 3. It needs no mount and
// no privileges, so it works in any container.
//
//	nfs://host/exported/directory/
//	nfs://fs-0123.efs.eu-west-1.amazonaws.com/directory/?tls=true
//
// [Scheme] describes the URL parameters. The path is the one of version 4, where all exports form
// one tree. On version 3 the package mounts the longest part of the path that the server allows.
// A missing directory has no objects, and the first write creates it. Where nothing can be
// created, as above all exports, Open fails and lists the names that exist.
//
// # Credentials
//
// The server trusts the numeric ids in each request (AUTH_SYS): ?uid=, ?gid= and up to 16 groups
// in ?gids=. The defaults are the ids of the process. Servers that squash root map uid 0 to
// nobody. Kerberos is not supported; the error for a server that requires it says so.
//
// # Keys
//
// An object is a regular file. Its key is the path below the directory. Names may contain
// anything but "/" and a zero byte. Keys that are not paths ("a//b", "../a") are rejected.
// Symbolic links are followed as package file does: relative links to a target within the
// directory of the URL. A link that leads outside is an error, also in List, because a dataset
// that silently lacks files is worse than none. List omits links that lead nowhere or back to
// one of their parent directories. The directory of the URL may itself be a link. Link targets
// are cached for 30 seconds. Names that begin with .stager-tmp- and directories named .stager are
// not objects. List holds the entries of one directory and its parents in memory, about 150 bytes
// each.
//
// # Versions
//
// A version consists of the change counter of the file (on version 3 its ctime), the file id and
// the size. The server returns the attributes with each block, after the data, and the reader
// compares them. A block is therefore returned only if the file was still unchanged after the
// read. The counter is a clock on version 3 and on many version 4 servers. Two changes within one
// tick then look like one, so Capabilities do not promise PinnedReads.
//
// # Writes
//
// Data goes to a temporary file beside the final one, and COMMIT makes it durable. If the
// verifier of the COMMIT differs from that of a write, the server has restarted and may have lost
// the data. Parts are then sent again; sequential writers fail and must start over. RENAME
// publishes the file. IfAbsent uses LINK instead, which fails if the name exists. Listings omit
// the orphans of killed writers. With IfVersion, writers exclude each other by claim files that
// LINK creates; see [backends.Claim].
//
// Lookups and reads find the old file or the new one at each moment. Listings may not: NFS-Ganesha
// leaves out a file while another client replaces it.
//
// # Server failures
//
// A connection is dropped if requests are pending and nothing arrives for 20 seconds. Lost
// connections, sessions and client ids are established again (see package nfs4). Open files are
// reopened by name, and their versions are compared.
package nfs
