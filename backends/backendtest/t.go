package backendtest

import (
	"context"
	"fmt"
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

// Asked is nil when STAGER_TEST_REQUIRE names a server, and else an error for Require:
// servers that come as packages of the system are installed for nobody who did not
// ask.
func Asked(name string) error {
	if required(name) {
		return nil
	}
	return fmt.Errorf("its server comes with packages that would be installed; %s=%s asks for it", EnvRequire, name)
}

func required(name string) bool {
	return slices.Contains(strings.Split(os.Getenv(EnvRequire), ","), name)
}

// Require skips the test when err, not nil, says why a server cannot be had; it
// fails instead when STAGER_TEST_REQUIRE names it.
func Require(t TB, name string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if required(name) {
		t.Fatalf("%s cannot be tested, and %s insists on it: %v", name, EnvRequire, err)
	}
	t.Skipf("%s cannot be tested here: %v", name, err)
}
