package servers

import (
	"os"
	"testing"
)

func TestDirsOfTheKilledAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	directory := func() *temp {
		f, err := makeTemp("x")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	killed, running := directory(), directory()
	killed.lock.Close() // as its end does
	next := directory()
	for f, want := range map[*temp]bool{killed: false, running: true, next: true} {
		if _, err := os.Stat(f.path); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", f.path, err == nil, want)
		}
	}
	for _, f := range []*temp{running, next, nil} {
		if err := f.remove(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(next.path); err == nil {
		t.Errorf("%s is there after it was removed", next.path)
	}
}
