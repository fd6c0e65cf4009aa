// Package servers starts real servers for tests, the demo and whoever wants to try:
// [StartS3] is an S3 server on this machine, [Proxy] stands before one, counts what
// is asked of it and goes wrong on request. [StartHDFS] is a NameNode and a DataNode.
//
// What a server needs is built from source the first time, with Go and its module
// proxy alone, and kept in the user's cache folder; HDFS is fetched by Maven and runs
// on Java, which are installed first on Debian where they are missing.
package servers
