// Package nfs4 is a client of NFS version 4.1 (RFC 8881). It reads, writes, lists and renames
// files. It has no locks, delegations or layouts.
//
// [Dial] returns a [Client], which implements remote.Tree for the whole namespace of the server:
//
//	client, err := nfs4.Dial(ctx, nfs4.Config{
//		RPC:        rpc.NewClient(dial, 2, rpc.Options{}), // two connections
//		Credential: rpc.System("machine", uid, gid, nil),
//	})
//	_, block, err := client.Open(ctx, "export/file", 0, 4096, true)
//	defer block.Release()
//
// # Requests
//
//  1. A request is a compound: path lookups, OPEN, READ and CLOSE are one message. A small file
//     costs one round trip.
//  2. A request uses a slot of the session. A slot carries one request at a time and numbers
//     them, and the server caches the last response of each slot. If a connection breaks, the
//     client sends the same request again and the server does not execute it twice.
//  3. If the caller gives up, the request continues. Its slot is parked until the response
//     arrives, or until a bare SEQUENCE with the same number has shown that the number is used.
//     The server does not cache responses to idempotent requests; these are executed again.
//  4. If the server asks the client to wait, because it is overloaded or in its grace period, the
//     client repeats the request after a pause. See remote.Wait.
//  5. If the server has lost the session, the client creates another one. It keeps the client id
//     if that is still valid, and open files then stay open.
//
// # Lost state
//
// A server closes files when their lease expires, when it restarts, or when an operator revokes
// them. The client reopens such a file by name at its next use. If the name is gone or has
// another file, the status is Stale. The caller detects changes of the file from the attributes
// that each read returns. Data that was not yet durable is lost if the verifiers of write and
// commit differ.
//
// There is no backchannel, so the server grants nothing that it could recall.
//
// A goroutine sends a SEQUENCE every third of the lease, so that files stay open while the client
// is idle.
package nfs4
