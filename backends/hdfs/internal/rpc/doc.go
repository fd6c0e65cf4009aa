// Package rpc sends requests to Hadoop's NameNodes by version 9 of Hadoop's RPC protocol, and logs
// in with Kerberos.
//
//	conn, err := rpc.Connect(tcp, rpc.Config{User: "trainer"})
//	response, err := conn.Call("getFileInfo", rpc.Fields{"src": "/data/file"})
//
// The HDFS library transfers the data, and has a client for NameNodes of its own. That one cannot
// send other requests than those of the library's methods.
//
// The messages are those that the library registers in [protoregistry.GlobalTypes], because a
// process can register each message only once. They are therefore known by name only.
//
// # Origin
//
// This package derives from internal/rpc and internal/sasl of github.com/colinmarc/hdfs/v2 v2.4.0,
// whose license is in the file LICENSE. It differs in these points:
//
//   - A [Conn] is a single connection and has no lock. Its user retries, chooses between NameNodes
//     and renews leases.
//   - The protection of responses is the strongest that the server offers in the Kerberos
//     handshake, as RFC 4752 says, and not what it offers for tokens.
//   - A rejected handshake returns the reason of the server. The length of a response is limited.
package rpc
