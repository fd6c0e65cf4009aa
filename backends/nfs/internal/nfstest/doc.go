// Package nfstest is an in-memory NFS server for tests of clients, like httptest for HTTP. It
// serves version 4.1, version 3 and the mount service over any stream. Tests can therefore run in a
// testing/synctest bubble, where a lease of 60 seconds expires at once:
//
//	s := nfstest.New()
//	s.WriteFile("data/a", []byte("contents"))
//	client, err := nfs4.Dial(ctx, nfs4.Config{RPC: rpc.NewClient(s.Dial, 1, rpc.Options{}), …})
//
// Code generated from the definitions of the protocols encodes and decodes the messages. It is
// independent of the clients.
//
// # Checks
//
// The server checks sequence numbers of slots, sessions, client ids and stateids as RFC 8881
// requires. A repeated request gets its response from the slot and is counted by
// [Server.Replays]. No file can be opened before RECLAIM_COMPLETE. [Server.Restart] discards
// unstable writes without a COMMIT. A client that is silent for longer than [Server.Lease]
// expires.
//
// # Faults
//
// Nothing fails by default. [Server.Next] scripts a [Fault] for the next requests with a given
// operation. [Server.Restart], [Server.ForgetSessions] and [Server.Revoke] simulate what servers
// and their operators do.
package nfstest
