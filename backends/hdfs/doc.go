// Package hdfs speaks to Hadoop's file system, by its own protocols.
//
//	hdfs://namenode:8020/directory/            one NameNode; 8020 is its usual port
//	hdfs://nameservice/directory/              several, by HADOOP_CONF_DIR or ?conf=
//	hdfs:///directory/                         fs.defaultFS of that configuration
//
// [Scheme] says which parameters there are. Of the configuration it takes what names
// NameNodes and turns on Kerberos or encryption, dfs.blocksize, dfs.replication and
// dfs.client.use.datanode.hostname. Files that include others (xi:include) and
// ${variables} are not followed.
//
// # Credentials
//
// Without Kerberos a NameNode believes whom it is told: ?user=, HADOOP_USER_NAME, the
// process's user. With it the login is that of package kerberos. Its name for the
// NameNode has the host as the configuration or the URL writes it (_HOST), so that is
// a name and no address.
//
// hadoop.rpc.protection may be authentication, integrity or privacy. DataNodes may send
// plainly, want SASL authentication, or encrypt by AES. What they sign (integrity), or
// encrypt by the ciphers of DIGEST-MD5, is refused with a sentence when it is read: the
// library miscounts there.
//
// # Keys
//
// An object is a closed file. Keys that are no path, or have a colon in them, are
// refused. Names that begin with .stager-tmp-, and directories .stager, are not objects.
// Delete removes directories that it leaves empty, but never the URL's own.
//
// A file that somebody is writing is not there yet: an empty one is left out of lists,
// with a line in the log, and one with full blocks, which a list cannot tell, is refused
// with kind Changed when its beginning is read. Of an append that begins while a file
// is read nothing shows: the bytes there were stay as they were.
//
// Erasure-coded files and those in encryption zones are refused: the library would read
// them without complaint, and wrongly.
//
// # Reading
//
// A version is the file's id with its length and time of modification. Reads look the
// name up, compare, and then go by the id, so a file that is replaced under way is read
// to its end or is of kind Changed. Every 512 bytes are compared with the CRC that the
// DataNode stored before they are handed out, and another replica is asked when they
// differ or when one is silent; see reader.fill. The library cannot ask for the CRC of
// a whole file that newer DataNodes can compute (COMPOSITE_CRC), so objects tell no
// checksum.
//
// A DataNode asked for bytes of a block sends it to its end. Facts.PartSize is therefore
// a whole number of blocks, of 128 MiB unless dfs.blocksize or ?block-size= say
// otherwise, and each range has a connection to the NameNode of its own.
//
// # Writes
//
// A file is written under a temporary name beside its final one, closed once the
// DataNodes have confirmed it, and renamed: over what is there, or with IfAbsent only
// where nothing is, which the NameNode decides in one step. With IfVersion writers exclude
// each other by claim files, see [backends.Claim], which a rename creates. When the rename's answer is
// lost, the file's id tells whether it happened. A DataNode that fails while a file is
// written makes the write fail with kind Unavailable, and Store begins anew; the library
// cannot rebuild a pipeline. What a broken write left is removed when the NameNode answers
// again. Killed writers leave temporary files, which no list shows.
//
// # Time
//
// The library has no deadlines and takes no contexts. Its connections here are ours:
// they end after 20 seconds without an answer of the NameNode and 12 without a byte of
// a DataNode, and a context that ends closes them. Of several NameNodes the one that
// answered last is asked first.
package hdfs
