// Package objectstore holds what object stores over HTTP share. A protocol such as s3 builds on it:
//
//   - [NewTransport] returns a transport tuned for many large bodies from one host, and [NewClient]
//     a client that uses it with fewer goroutines.
//   - [Response.Wanted] and [NewBody] read a range of one version and reject responses for another
//     version.
//   - [Create] and [CreateParts] write an object: a small one with one request, a larger one in
//     parts. The protocol implements an [Uploader].
//   - [Known] and [NoResponse] classify errors that occur without a response. [Shorten],
//     [Innermost] and [Connection] turn them into readable messages.
package objectstore
