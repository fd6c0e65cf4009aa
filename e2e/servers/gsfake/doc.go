// Package gsfake is a server that implements as much of Google Cloud Storage as a mover of objects
// needs: listings, metadata, deletion and composition of the JSON API, and reads, writes and
// multipart uploads of the XML API. It stands in for the service because emulators ignore the
// preconditions of reads.
//
// It is strict. Every request to a bucket that is not public needs a token that was issued here and
// has not expired. Parameters and headers that it does not know are errors. Preconditions are
// checked, also that multipart uploads have none. Checksums are computed from the bytes in its
// directory, and those that a request states must match.
//
// It can fail on request, see [fake.Fault], and issues tokens like Google's token server, its exchange
// for workload identities and the metadata server, all at Control.
//
// Objects are files in a directory. What describes them is in memory.
package gsfake
