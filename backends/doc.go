// Package backends reads and writes objects in remote stores: object stores, file shares,
// distributed file systems and mounted directories.
//
// [Registry.Open] turns a URL into a [Store]. Package backends/all provides the registry of all
// protocols:
//
//	store, err := all.Registry().Open(ctx, "s3://bucket/models/", backends.Options{})
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	for obj, err := range store.List(ctx, "") {
//		...
//	}
//
// A Store lists objects, reads ranges, puts and deletes. It adds what every protocol needs:
// retries, limits, a stall detector, metrics, and errors that name the store and the key.
//
// A protocol implements the small interface [Backend] and describes itself with a [Scheme].
// Optional features take two forms. [Capabilities] are data about the store. Optional interfaces,
// such as [PartCreator], are detected once by the Store, so no method returns "unsupported".
// Package backends/conformance tests the contract and runs against every protocol. Package
// backends/internal/objectstore holds what HTTP object stores share.
//
// Three rules apply throughout:
//
//   - A read names a version. Ranges of one object are read over minutes, in parallel and across
//     restarts. If the object changes, the read fails with kind [Changed] and never mixes versions.
//   - A write ends explicitly, with [Writer.Commit] or [Writer.Abort]. Until Commit returns nil,
//     readers see the previous object.
//   - The [Kind] of an error decides how to react. Its text explains to a person what happened.
//
// Keys are UTF-8 strings, relative to the root of the store, with "/" between parts. Keys returned
// by a store are untrusted. This package passes them on unchanged; code that turns them into paths
// must make them safe (see package stager/plan).
package backends
