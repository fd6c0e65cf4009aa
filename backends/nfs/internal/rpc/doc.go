// Package rpc calls remote procedures as ONC RPC version 2 defines them (RFC 5531),
// over TCP.
//
// A [Client] holds a few connections to one server and dials again when one broke;
// a [Conn] is one of them. Many calls may be under way on a connection, and answers
// come in any order:
//
//	msg := rpc.NewCall(cred, program, version, procedure, 0)
//	msg.Uint32(42)                       // the arguments, as XDR
//	call, err := conn.Start(msg)
//	reply, err := call.Wait(ctx)
//	defer reply.Release()
//	answer := reply.Uint32()             // the results
//
// [Encoder] is an io.Writer and [Decoder] an io.Reader, which is what code generated
// from XDR definitions reads and writes; their own methods neither copy nor allocate
// what is long.
//
// A call has no deadline but that of its context. A connection has one: when calls
// wait for answers and nothing at all comes for [Options.Silence], it is taken for
// broken, and all of them end with a [*BrokenError]. Whether the server carried such
// a call out is not known; sending the same message again on another connection is
// the caller's decision, and keeps its transaction id; [Client.Send] does that once.
package rpc
