// Package nfs4 is a client of NFS version 4.1 (RFC 8881), without locks, delegations
// and layouts: what is needed to read, write, list and rename files.
//
// [Dial] makes a [Client], which is a remote.Tree of the server's whole namespace:
//
//	client, err := nfs4.Dial(ctx, nfs4.Config{
//		RPC:        rpc.NewClient(dial, 2, rpc.Options{}), // two connections
//		Credential: rpc.System("machine", uid, gid, nil),
//	})
//	_, block, err := client.Open(ctx, "export/file", 0, 4096, true)
//	defer block.Release()
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
//     Requests that may be done twice are not kept by the server, and are done again.
//  4. When the server asks to wait, as it does when it is overloaded or within its
//     period of grace, the request is sent again after a pause, see remote.Wait.
//  5. When the server forgot the session, a new one is made, with the same client id
//     if that is still known, and what is open stays open.
//
// # What a server may forget
//
// Files that the server closed — its lease expired, it was restarted, an operator did
// it — are opened again by name when they are next used. If another file has the name
// by then, or none, the answer is status Stale; whether the file was changed is for the
// caller to see from the attributes that come with each read. Bytes that were written
// and not made durable are lost when the verifiers of write and commit differ.
//
// There is no backchannel, so that a server grants nothing which it could call back.
//
// A goroutine sends a SEQUENCE at a third of the lease, so that the server keeps what
// is open while nothing is asked.
package nfs4
