package conformance

import "context"

// TB is what a check needs from a test; *testing.T implements it. Fatalf and Skipf end the
// goroutine of the check, like those of *testing.T. If a failure has an error of the store, it is
// among the args; wrong bytes are an error of kind Corrupt.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Runner is a TB with subtests, such as *testing.T. P is its own type.
type Runner[P any] interface {
	TB
	Run(name string, f func(P)) bool
}
