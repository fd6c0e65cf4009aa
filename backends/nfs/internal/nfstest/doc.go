// Package nfstest is an NFS server in memory for the tests of clients, as httptest is
// for HTTP. It speaks version 4.1 and, with its mount service, version 3, over any
// stream; so tests can run in a testing/synctest bubble, where a lease of 60 seconds
// passes at once:
//
//	s := nfstest.New()
//	s.WriteFile("data/a", []byte("contents"))
//	client, err := nfs4.Dial(ctx, nfs4.Config{RPC: rpc.NewClient(s.Dial, 1, rpc.Options{}), …})
//
// Messages are read and written by code generated from the protocols' definitions,
// none of which its clients share.
//
// # What it holds clients to
//
// Sequence numbers of slots, sessions, client ids and stateids are checked as RFC 8881
// wants it; the answer to a request that is sent again comes from the slot, and is
// counted by [Server.Replays]. A file cannot be opened before RECLAIM_COMPLETE. What is
// written unstably is lost by [Server.Restart] unless COMMIT came. A client that is
// silent for longer than [Server.Lease] is forgotten.
//
// # What goes wrong
//
// Nothing by itself. [Server.Next] scripts a [Fault] for the next requests that hold an
// operation; [Server.Restart], [Server.ForgetSessions] and [Server.Revoke] are what
// servers and their operators do.
package nfstest
