// Package nfs4 is a client of NFS version 4.1 (RFC 8881), without locks, delegations
// and layouts: what is needed to read, write, list and rename files.
//
// [Dial] makes a [Client], which is a remote.Tree of the server's whole namespace.
//
// # How a request travels
//
//  1. It is a compound: the names of a path, an OPEN, a READ and a CLOSE are one
//     message. Small files cost one round trip.
//  2. It takes a slot of the session. A slot carries one request at a time and numbers
//     them, and the server keeps the last answer of each; so a request whose answer
//     was lost with its connection is sent again as it was, and is not done twice.
//  3. When its caller gives up, the request does not end: its slot is parked until
//     the answer has come, or until a bare SEQUENCE of the same number has found out
//     that the number is used.
//  4. When the server forgot the session, a new one is made, with the same client id
//     if that is still known; files that were open under another client id are
//     opened again by name. Whether they are still the same is for the caller to see
//     from the attributes that come with each read.
//
// A goroutine sends a SEQUENCE at a third of the lease, so that the server keeps what
// is open while nothing is asked.
package nfs4
