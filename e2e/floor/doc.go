// Package floor moves the files of a directory from or to an HTTP server with hardly more work than
// the bytes themselves cause. The bench compares it with stager and the other clients: no client written in Go that uses
// these system calls can be much faster on the same machine.
//
// It leaves out everything that a client adds to make a transfer safe: signatures, listings, checksums, temporary
// names, retries, syncs, reports. It knows the names and the sizes in advance, from a local directory with the same files.
// The caller says how many connections it uses.
package floor
