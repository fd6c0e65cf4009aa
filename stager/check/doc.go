// Package check tries the contract of stores on a store in service, for the operator
// who wants to know what his own keeps.
//
// [Run] works in a scratch directory with a random name below the store it is given,
// touches nothing else, and removes the directory at the end, also when it is cancelled.
// It runs package backends/conformance as a test would, looks for facts that no
// protocol tells (the longest name, the clock, the checksums that really come) and
// measures. Where writing is refused, or not wanted, it reads what is there.
//
// With Config.SpeedOnly it only measures.
//
// The answer is a [Report]: what holds, in the contract's own sentences, what does not,
// what that means for prefetch, window and checkpoints, and what to do.
package check
