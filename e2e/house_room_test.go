package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withoutRoom are the packages of this module whose windows are not sampled by package room, or that
// have none.
var withoutRoom = map[string]string{
	"bench":           "it measures speed, which sampling changes",
	"cmd/bench":       "it runs no stager",
	"floor":           "it runs no stager",
	"frameworks":      "its plans have outputs alone",
	"image":           "it runs no stager",
	"kinds":           "it runs no stager",
	"lossyfs":         "it runs no stager; windows on it are in trial",
	"recording":       "it runs no stager",
	"reference":       "it runs no stager",
	"release":         "it runs no window",
	"room":            "its windows are fakes that take too much",
	"servers":         "it runs no stager",
	"servers/ossfake": "it runs no stager",
	"simulation":      "it runs no stager",
	"servers/ports":   "it runs no stager",
	"tools":           "it runs no stager",
}

// Every "stager run" that tests start is found by package room, and the directory of its window is
// sampled, whoever wrote the test: of each package here, unless it is listed with a reason.
// Windows within a test's own process are not found: package window has TestWindowTakesNoMoreThanItsSize for them.
func TestPackagesSampleTheirWindows(t *testing.T) {
	sampled := make(map[string]bool) // by directory, of those with tests
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		dir := filepath.ToSlash(filepath.Dir(path))
		sampled[dir] = sampled[dir] || path != "house_room_test.go" && strings.Contains(string(text), "room.Run(m)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, is := range sampled {
		if reason := withoutRoom[dir]; is == (reason != "") {
			t.Errorf("the tests of %s are run by room.Run: %v; it stands in the list without, with the reason %q", dir, is, reason)
		}
	}
	for dir := range withoutRoom {
		if _, there := sampled[dir]; !there {
			t.Errorf("%s has no tests and stands in the list", dir)
		}
	}
}
