// Package room measures what windows take of their disks.
//
// A [Watcher] samples one directory. [Run] finds every "stager run" that the tests of a package
// start, by whatever means, reads its plan, and samples the directory of each window until the
// process ends, so that no test can forget it.
package room
