// Package ossfake is a server that speaks Alibaba Cloud's OSS as far as a mover of
// objects needs it. It stands in for the service because nothing else that can run
// on a machine of one's own does: servers of S3 reject its requests, and emulators
// check no signature.
//
// So it is strict where the service is. Every request is verified, signature V1 or
// V4 and the session token, against rules written from Alibaba's description of
// them; what it cannot verify or does not know is an error and never guessed.
// Answers carry CRC-64s computed from the bytes that lie in its directory, lists are
// url-encoded with markers, parts of an upload are checked for order, size and
// ETag. Oddities that hurt are kept: a range that cannot be satisfied is answered
// with the whole object unless the client asks for standard behaviour, and
// x-oss-forbid-overwrite means nothing in a bucket with versioning.
//
// It can go wrong on request, see [fake.Fault], and be an ECS instance's metadata
// service, at Control.
//
// Objects lie as files in a directory, so their size is that of the disk; what
// describes them lies in memory and goes with the server.
package ossfake
