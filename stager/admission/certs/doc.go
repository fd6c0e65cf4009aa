// Package certs manages the serving certificate of stager's webhook.
//
// [Keeper] issues and renews a self-signed one. [Dir] reads tls.crt and tls.key from a directory
// that another program, such as cert-manager, maintains, and reads them again when they change.
//
// Keeper signs each certificate with a new CA and discards the CA's key at once, so nobody can sign
// another certificate. All replicas share one Secret. A replica writes it only over the version
// that it has read. A renewal has four steps:
//
//  1. After two thirds of the certificate's life, the next certificate is stored next to it,
//     and its CA is added to the bundle.
//  2. The bundle is published in the webhook's configuration, where API servers read it.
//  3. One hour later, when all API servers have the bundle, the next certificate is served.
//  4. The old CA leaves the bundle when it expires.
//
// If a replica dies between two steps, any replica can continue.
package certs
