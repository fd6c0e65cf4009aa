// Package certs keeps the certificate of stager's webhook: made by itself and renewed,
// or read from a directory that another program such as cert-manager keeps.
//
// [Keeper] makes them. Each certificate is signed by an authority of its own, whose key
// is thrown away at once, so that nobody can sign another. All replicas share one
// Secret, which is written only over the version that was read. A renewal is:
//
//  1. after two thirds of its life the next certificate is put beside the serving one,
//     and its authority into the bundle beside the old one;
//  2. the bundle goes into the webhook's configuration, where API servers find it;
//  3. an hour later, when all have, the next one becomes the serving one;
//  4. the old authority leaves the bundle when it ends.
//
// A replica that dies between two steps leaves a state from which any goes on.
// [Directory] reads tls.crt and tls.key, and reads them again when they change.
package certs
