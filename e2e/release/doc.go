// Package release makes the files of a release of stager:
//
//	err := release.Make(ctx, release.Options{Source: "..", Out: "../bin/release", Version: "0.1.0", Commit: commit, Date: date})
//
// The same options and the same version of Go give the same bytes, in any directory. "make release"
// calls it by the command release.
package release
