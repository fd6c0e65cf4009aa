// Package conformance tests the contract of stores and provides shared helpers for such tests.
//
// [Run] checks a store against the guarantees of package backends. Every protocol calls it from its
// own tests:
//
//	func TestContract(t *testing.T) {
//		conformance.Run(t, func(t *testing.T) *backends.Store { return open(t) }, conformance.Options{})
//	}
//
// [Inspect] is the read-only half, for objects that a store already has.
//
// Both need only a [TB] with a Run method, so a command for operators can run the same checks
// against a store in production. Each check of Run works in a new directory and removes it.
//
// [Faults] injects scripted faults at the exact call and byte that a test needs. [ContentsOf]
// returns bytes generated from a key: terabytes that take no memory. Package live starts real
// servers.
package conformance
