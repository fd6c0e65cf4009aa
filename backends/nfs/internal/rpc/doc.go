// Package rpc is a client of ONC RPC version 2 (RFC 5531) over TCP.
//
// A [Client] holds a few connections to one server and reconnects when one breaks. A [Conn] is a
// single connection. Many calls may be in flight on it, and responses arrive in any order:
//
//	msg := rpc.NewCall(cred, program, version, procedure, 0)
//	msg.Uint32(42)                       // the arguments, as XDR
//	call, err := conn.Start(msg)
//	reply, err := call.Wait(ctx)
//	defer reply.Release()
//	result := reply.Uint32()             // the results
//
// [Encoder] is an io.Writer and [Decoder] an io.Reader, as code generated from XDR definitions
// needs. Their own methods neither copy nor allocate long values.
//
// The only deadline of a call is that of its context. A connection has a deadline too: if calls
// are pending and nothing arrives for [Options.Silence], the connection is broken and all its
// calls return a [*BrokenError]. Such a call may or may not have been executed. The caller
// decides whether to send the same message, with its transaction id, on another connection.
// [Client.Send] does so once.
package rpc
