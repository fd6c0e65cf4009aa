package live

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Environment variables of tests.
const (
	// EnvRequire lists, separated by commas, what must be available, such as servers.
	EnvRequire = "STAGER_TEST_REQUIRE"
	// EnvSkipped names a file that receives a line for everything that could not be tested.
	EnvSkipped = "STAGER_TEST_SKIPPED"
)

// TB is what Require needs from a test; *testing.T implements it.
type TB interface {
	Helper()
	Fatal(args ...any)
	Skip(args ...any)
}

// Require skips the test if err, the reason why name is not available, is not nil. It fails the
// test instead if STAGER_TEST_REQUIRE lists name.
func Require(t TB, name string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if err := Insist(name, err); err != nil {
		t.Fatal(err)
	}
	t.Skip(name, "cannot be tested here:", err)
}

// Insist is Require without a test to skip. It returns an error only if name must be available but
// is not, for the reason why.
func Insist(name string, why error) error {
	if slices.Contains(strings.Split(os.Getenv(EnvRequire), ","), name) {
		return fmt.Errorf("%s cannot be tested, and %s insists on it: %w", name, EnvRequire, why)
	}
	path := os.Getenv(EnvSkipped)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s: %s\n", name, strings.ReplaceAll(why.Error(), "\n", "; "))
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}
