// Package e2e tests stager as it is typed, against real servers. It is a module of
// its own, so that what tests need never enters the product's.
//
//   - servers starts an S3 server, and a proxy that can make it fail
//   - testdata/script holds a script for each command, with what bad input says, and
//     one for what goes wrong over each protocol
//   - testdata/journey.txtar is what every protocol must do, typed over each
//   - trial kills readers and the daemon and counts every shard; the demo is one size
//     of it, TestWindowLosesNothing another
//   - house_test.go holds the rules of the house: who imports whom, and the like
package e2e
