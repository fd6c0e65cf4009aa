// Package servers starts real servers for tests, the demo and whoever wants to try:
// [StartS3] is an S3 server over a directory of this machine, [StartCeph] the S3 server
// that most sites run, [StartGanesha] an NFS server,
// [StartHDFS] a NameNode, or two, and a DataNode, [StartSamba] an SMB server,
// [StartKDC] a Kerberos server for those two, and [StartOSS] a double of OSS that
// verifies every signature. [Proxy] stands before the first, counts what is asked of it
// and goes wrong on request.
//
// The S3 server is built from source the first time, with Go and its module proxy
// alone, and kept in the user's cache directory; Ceph is unpacked there from Debian's
// packages and not installed. HDFS is fetched by Maven and runs on Java. Those, Samba, Ganesha and MIT Kerberos are installed from Debian's packages
// where they are missing, which needs root, and is said.
package servers
