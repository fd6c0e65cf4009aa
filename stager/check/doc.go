// Package check tests whether a store in service keeps the contract that stager relies on. It is
// for operators who want to know what their own store supports.
//
// [Run] works in a scratch directory with a random name below the given store and touches nothing
// else. It removes the directory at the end, also when it is cancelled. It runs package
// backends/conformance as a test would, probes for properties that no protocol reports (the longest
// name, the clock, the checksums that the store really returns), and measures speed. Where writing
// is refused or not wanted, it reads existing objects.
//
// With Config.SpeedOnly it only measures.
//
// The result is a [Report]: which sentences of the contract hold, which do not, what that means for
// prefetch, window and checkpoints, and what to do.
package check
