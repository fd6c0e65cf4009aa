package live

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Environment variables of tests.
const (
	// EnvRequire lists, with commas, what must be there, such as servers.
	EnvRequire = "STAGER_TEST_REQUIRE"
	// EnvSkipped names a file that gets a line for all that could not be tested.
	EnvSkipped = "STAGER_TEST_SKIPPED"
)

// TB is what Require needs of a test; *testing.T is one.
type TB interface {
	Helper()
	Fatal(args ...any)
	Skip(args ...any)
}

// Require skips the test when err, not nil, says why something cannot be had, such
// as a server; it fails instead when STAGER_TEST_REQUIRE names it.
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

// Insist is Require for who has no test to skip: it returns an error only when what
// cannot be had, for the reason why, must be there.
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
