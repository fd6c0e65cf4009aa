// Package servers starts real servers for tests, the demo and whoever wants to try:
// [StartS3] is an S3 server on this machine, [StartGanesha] an NFS server; [Proxy]
// stands before the former, counts what is asked of it and goes wrong on request.
//
// What a server needs is built from source the first time, with Go and its module
// proxy alone, and kept in the user's cache folder.
package servers
