// Package nfs3 is a client of NFS version 3 (RFC 1813) and of its mount service,
// without locks: what is needed to read, write, list and rename files.
//
// [Mount] finds the handle of an exported directory, and [Dial] makes of it a [Client],
// which is a remote.Tree of what lies below:
//
//	root, err := nfs3.Mount(ctx, mountService, cred, "/export")
//	client, err := nfs3.Dial(ctx, nfs3.Config{RPC: nfsService, Credential: cred, Root: root})
//	attr, err := client.Stat(ctx, "directory/file")
//
// The server keeps no state of clients, so that its restart shows in nothing but a
// pause and other write verifiers. A request whose answer was lost with its connection
// is sent again under the same transaction id; a server that remembers it does not do
// it twice, others answer Exist or NoEnt for what was done the first time.
//
// Handles of directories are kept for 30 seconds, as kernels do: without that each name
// of a path would be a round trip for each file. A directory that is renamed by others
// is found under its old name for so long.
package nfs3
