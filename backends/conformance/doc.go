// Package conformance is the contract of stores, as tests, and what else tests of
// stores share.
//
// [Run] checks a store against the promises of package backends; every protocol
// calls it from its own test:
//
//	func TestContract(t *testing.T) {
//		conformance.Run(t, func(t *testing.T) *backends.Store { return open(t) }, conformance.Options{})
//	}
//
// [Inspect] is the reading half of it, on objects that a store has already.
//
// They ask no more of their caller than a [TB] with a Run, so an operator's command
// can run the same checks against a store in service: each check of Run works in a new
// directory of its own and removes it.
//
// [Faults] go wrong by a script, at the very call and byte that a test wants.
// [ContentsOf] are bytes made from a key: terabytes that take no memory. Package live
// starts real servers.
package conformance
