package main

import (
	"strings"
	"testing"
)

func TestLinuxOnlyErrorEndsWithConfig(t *testing.T) {
	if err := onlyOnLinux("linux", "run", "why"); err != nil {
		t.Errorf("got %v on Linux, want no error", err)
	}
	var said strings.Builder
	code := report(&said, onlyOnLinux("darwin", "run", "why"))
	if want := "stager: stager run needs Linux: why\n"; code != exitConfig || said.String() != want {
		t.Errorf("got code %d and %q, want %d and %q", code, said.String(), exitConfig, want)
	}
}
