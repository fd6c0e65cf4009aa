// Package api tells what stager is doing, and takes orders.
//
// A [Snapshot] is the whole state as one value: the command line prints it, the API
// serves it, tests compare it. [API] is the HTTP API that trainers talk to, served
// over a Unix socket and, where asked for, on a port:
//
//	POST /v1/inputs/{input}/lease?reader=ID&wait=30s   take the next shard
//	GET  /v1/inputs/{input}/next?reader=ID             the same, as a stream of its bytes
//	POST /v1/leases/{id}/ack | nack?reason= | return | renew   end or prolong a lease
//	POST /v1/ack?path=  /v1/nack?path=&reason=         the same, for those who kept the path only
//	GET  /v1/inputs/{input}                            how the window stands
//	GET  /v1/inputs/{input}/cursor  PUT                where it stands; go on there, with any number of nodes
//	GET  /v1/inputs/{input}/plan?epoch=  report?epoch= what is delivered in which order; how it was; lines of JSON
//	POST /v1/outputs/{output}/commit                   a checkpoint is complete
//	GET  /v1/outputs/{output}                          what is saved, and what not yet
//	POST /v1/drain?deadline=30s                        the end is near: save what there is
//	GET  /v1/status  /healthz  /readyz  /metrics
//
// A lease taken with the header "Stager-Bind: connection" lives as long as the
// connection it was taken on: the kernel closes a killed reader's sockets, so its
// shards are free again within a millisecond. Other leases have a time-out, which
// renew sets anew; with that header it binds the lease to the connection it is called
// on. The end of the server ends no lease: readers come back with theirs.
//
// With &epoch=N a reader gets nothing of a later epoch, and with &end=early it is told
// the end when others hold the rest, for loaders that take from their workers in turn.
// &mixes=true is said by a reader that hands samples on in an order of its own, so that a
// count of them does not tell where it is.
//
// No shard now is 204, with its cause in Stager-Wait-Cause: backend, network, disk,
// budget, readers, or "end" after a drain. The end of an epoch is 200 with {"end": true}.
//
// Answers are JSON. An error is {"error": "a sentence"} with a status that says
// whose turn it is: 4xx the caller's, 503 try again, 500 the input is lost. On a port
// what changes something, and the shards, need a token.
package api
