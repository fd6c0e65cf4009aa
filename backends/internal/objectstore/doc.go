// Package objectstore is what object stores that are spoken to over HTTP have in
// common; a protocol that is one builds on it.
//
//   - [NewTransport] is tuned for many large bodies to one host.
//   - [Answer.Wanted] and [NewBody] read a range of one version, and believe no
//     answer that is of another.
//   - [Create] and [CreateParts] write an object: a small one by one request, a larger
//     one in parts. The protocol says how in an [Uploader].
//   - [Known] and [Unanswered] tell an error's kind where no answer does; [Shorten],
//     [Innermost] and [Connection] bring it into a sentence.
package objectstore
