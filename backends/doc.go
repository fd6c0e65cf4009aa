// Package backends reads and writes objects in stores that sit far away: object
// stores, file shares, distributed file systems and mounted directories.
//
// Start with [Registry.Open], which turns a URL into a [Store]; package
// backends/all has the registry with every protocol. A Store lists, reads ranges,
// puts and deletes, and adds what every protocol needs but none should write
// itself: retry, limits, a watchdog over stalled streams, metrics and errors that
// say which store and which key.
//
// A protocol implements [Backend], which is small on purpose, and is told about in
// a [Scheme]. What it can do beyond that it says in two ways: [Facts] are data
// about the store, abilities are interfaces such as [PartCreator] that Store asks
// for once. No method answers "unsupported". Package backends/conformance holds the
// contract as tests and runs against every protocol; package backends/internal/objectstore is
// what object stores over HTTP share.
//
// Three rules carry the rest:
//
//   - A read names a version. Ranges of one object are read over minutes, in
//     parallel and across restarts; an object that changed is an error of kind
//     [Changed], never a mixture.
//   - A write ends by name, [Writer.Commit] or [Writer.Abort]; until Commit
//     returns nil readers see what was there before.
//   - An error's [Kind] answers "what now?", its text tells a person what happened.
//
// Keys are UTF-8 strings with "/" between parts, relative to the store's root.
// Keys that come from a store are hostile: this package hands them on as they are,
// and whoever turns them into paths makes them safe (package stager/plan).
package backends
