// Package nfs3 is a client of NFS version 3 (RFC 1813) and of its mount service. It reads, writes,
// lists and renames files; it has no locks.
//
// [Mount] returns the handle of an exported directory. [Dial] returns a [Client] for it, which
// implements remote.Tree:
//
//	root, err := nfs3.Mount(ctx, mountService, cred, "/export")
//	client, err := nfs3.Dial(ctx, nfs3.Config{RPC: nfsService, Credential: cred, Root: root})
//	attr, err := client.Stat(ctx, "directory/file")
//
// The server keeps no state of its clients. A restart only causes a pause and changes the write
// verifiers. If a connection breaks before the response arrives, the client sends the request
// again with the same transaction id. A server with a reply cache does not execute it twice;
// others return Exist or NoEnt for what the first request did.
//
// Handles of directories are cached for 30 seconds, as kernels do. Otherwise each name in a path
// would cost a round trip for each file. For that time a directory that another client renames is
// still found under its old name.
package nfs3
