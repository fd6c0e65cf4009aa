// Package hdfs reads and writes objects on the Hadoop Distributed File System, by Hadoop's own
// protocols and without Java.
//
//	hdfs://namenode:8020/directory/            one NameNode; 8020 is its usual port
//	hdfs://nameservice/directory/              several, by HADOOP_CONF_DIR or ?conf=
//	hdfs:///directory/                         fs.defaultFS of that configuration
//
// [Scheme] describes the URL parameters. From the Hadoop configuration the package reads the
// properties that name NameNodes and turn on Kerberos or encryption, and dfs.blocksize,
// dfs.replication and dfs.client.use.datanode.hostname. It does not expand includes (xi:include)
// or ${variables}.
//
// The library github.com/colinmarc/hdfs transfers data. What its methods cannot request from a
// NameNode, package internal/rpc does over a connection of its own; see [namenode].
//
// # Credentials
//
// Without Kerberos a NameNode trusts the user name of the client: ?user=, HADOOP_USER_NAME, or
// the user of the process. With Kerberos, package kerberos logs in. The principal of the NameNode
// contains the host as the configuration or the URL writes it (_HOST). That must therefore be a
// host name, not an address.
//
// hadoop.rpc.protection may be authentication, integrity or privacy. It protects what NameNodes
// send. Requests, which contain paths and no data, are sent in plain. DataNodes may send plain
// data, require SASL authentication, or encrypt with AES. Reading data that DataNodes sign
// (integrity) or encrypt with the ciphers of DIGEST-MD5 returns an error, because the library
// miscounts such messages.
//
// # Keys
//
// An object is a closed file. Keys that are not paths or contain a colon are rejected. Names that
// begin with .stager-tmp- and directories named .stager are not objects. Delete also removes
// directories that become empty, but never that of the URL.
//
// A file that is being written is not an object yet. Listings skip it while it is empty, and
// log that. A listing cannot recognize such a file once it has full blocks; reading its beginning
// then fails with kind Changed. An append that starts during a read does not affect the read: the
// existing bytes do not change.
//
// Erasure-coded files and files in encryption zones are rejected. The library would read them
// without an error and return wrong data.
//
// # Reading
//
// A version consists of file id, length and modification time. A read resolves the name, compares
// the version, and then reads by id. A file that is replaced meanwhile is therefore read to its
// end or fails with kind Changed. Each 512 bytes are verified against the CRC that the DataNode
// stored before Read returns them. If a CRC differs or a DataNode is silent, the read continues
// at another replica; see reader.fill. The library cannot request the CRC of a whole file that
// newer DataNodes can compute (COMPOSITE_CRC), so objects have no checksum.
//
// A DataNode sends a block to its end, even for a shorter range. Capabilities.PartSize is
// therefore a multiple of the block size: 128 MiB unless dfs.blocksize or ?block-size= say
// otherwise. Each range uses its own connections to the NameNode.
//
// # Writes
//
// A file is written under a temporary name beside its final name, closed after the DataNodes have
// confirmed it, and renamed. The rename replaces an existing file. With IfAbsent the NameNode
// fails it atomically if the name exists. With IfVersion, writers exclude each other by claim
// files, which a rename creates; see [backends.Claim]. If the response to a rename is lost, the
// file id shows whether it happened. If a DataNode fails during a write, the write fails with
// kind Unavailable and Store starts over. The library cannot rebuild a pipeline. The orphans of a
// failed write are removed when the NameNode responds again. Killed writers leave temporary
// files, which listings omit.
//
// # Time
//
// The library has no deadlines and no contexts, so this package provides all connections. They
// end after 20 seconds without a response of the NameNode or 12 seconds without a byte of a
// DataNode. When a context ends, its connections are closed. Of several NameNodes the one that
// last responded is tried first.
package hdfs
