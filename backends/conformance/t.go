package conformance

import "context"

// TB is what a check needs of the test it runs in; *testing.T is one. Fatalf and
// Skipf end the check's goroutine, as those of *testing.T do. What a check complains
// about has the store's error among its args, if there was one; that of wrong bytes is
// of kind Corrupt.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Runner is a TB with checks below it, such as *testing.T: P is its own type.
type Runner[P any] interface {
	TB
	Run(name string, f func(P)) bool
}
