// Package api serves the state of stager over HTTP and accepts requests that change it.
//
// A [Snapshot] is the whole state as one value: the command line prints it, the API serves it, and
// tests compare it. [API] is the HTTP API for trainers, on a Unix socket and optionally on a port.
// [Client] calls it:
//
//	POST /v1/inputs/{input}/lease?reader=ID&wait=30s   lease the next shard
//	GET  /v1/inputs/{input}/next?reader=ID             the same, as a stream of its bytes
//	POST /v1/leases/{id}/ack | nack?reason= | return | renew   end or prolong a lease
//	POST /v1/ack?path=  /v1/nack?path=&reason=         the same, by path instead of by lease
//	GET  /v1/inputs/{input}                            state of the window
//	GET  /v1/inputs/{input}/cursor  PUT                read the cursor; continue from it, with any number of nodes
//	GET  /v1/inputs/{input}/plan?epoch=  report?epoch= planned order; what was delivered; JSON lines
//	POST /v1/outputs/{output}/commit                   a checkpoint is complete
//	GET  /v1/outputs/{output}                          what is saved, and what is not
//	POST /v1/restored?source=URL&job=ID&agreement=N    the trainer begins again from an agreed checkpoint
//	POST /v1/drain?deadline=30s                        stop fetching and save the outputs
//	GET  /v1/status  /healthz  /readyz  /metrics
//
// A lease requested with the header "Stager-Bind: connection" lives as long as its connection. The
// kernel closes the sockets of a killed reader, so its shards are free again within a millisecond.
// Other leases have a time-out, which renew restarts. A renew with that header binds the lease to
// the connection of the renew request. A restart of the server ends no lease: readers reconnect and
// continue with theirs.
//
// With &epoch=N a reader gets nothing of a later epoch. With &end=early it gets the end of the
// epoch when other readers hold the remaining shards, for loaders that read from their workers in
// turn. A reader sends &mixes=true when it reorders samples, so that a count of samples does not
// give its position.
//
// If no shard is available now, the status is 204 and Stager-Wait-Cause gives the cause: backend,
// network, disk, budget, readers, or "end" after a drain. The end of an epoch is 200 with {"end":
// true}.
//
// Responses are JSON. An error is {"error": "a sentence"}; its status says who must act: 4xx the
// caller, 503 try again, 500 the input is lost. On a port, requests that change something and
// requests for shards need a token.
package api
