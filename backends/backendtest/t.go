package backendtest

import (
	"context"
	"os"
	"slices"
	"strings"
)

// TB is what a check needs of the test it runs in; *testing.T is one. Fatalf and
// Skipf end the check's goroutine, as those of *testing.T do.
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

// EnvRequire is the environment variable that lists, with commas, the servers that
// must be there.
const EnvRequire = "STAGER_TEST_REQUIRE"

// Require skips the test when err, not nil, says why a server cannot be had; it
// fails instead when STAGER_TEST_REQUIRE names it.
func Require(t TB, name string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv(EnvRequire), ","), name) {
		t.Fatalf("%s cannot be tested, and %s insists on it: %v", name, EnvRequire, err)
	}
	t.Skipf("%s cannot be tested here: %v", name, err)
}
