package stager

import (
	"log/slog"
	"os"
	"strings"
	"testing"
)

// longListJob returns a job whose window of a size has begun, and has then listed many objects.
func longListJob(t *testing.T, size string, pages int) (*job, *said) {
	t.Helper()
	j := beginJob(t, pages, "")
	j.plan = strings.ReplaceAll(j.plan, "size: 16Mi", "size: "+size)
	log := new(said)
	j.log = slog.New(slog.NewTextHandler(log, nil))
	j.begun()
	j.listed()
	if w := j.Snapshot().Inputs[0].Window; w.Peak > w.Limit {
		t.Errorf("the window took %d bytes, want at most %d", w.Peak, w.Limit)
	}
	return j, log
}

// A list that takes more than a quarter of the window was neither kept nor on the disk as a whole, and
// nothing said so: the restart listed the source again.
func TestLongListOfABeginningIsKept(t *testing.T) {
	j, log := longListJob(t, "1Mi", 40)
	info, err := os.Stat(j.list())
	if err != nil || info.Size() <= 1<<20/4 {
		t.Fatalf("got %v (%v), want a list of more than a quarter of the window; the log is\n%s", info, err, log)
	}
	if log.has(notKept) {
		t.Errorf("the log says %q\n%s", notKept, log)
	}
	j.wants(0, 10)
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
	j.pages.allow(1)
	j.opened()
	j.wants(11, 20)
	if !log.has("continuing with the list of objects") {
		t.Errorf("the restart lists the source\n%s", log)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// What a list takes beyond half of the window stays in memory, and one line says so.
func TestListThatAWindowHasNoRoomForIsReported(t *testing.T) {
	j, log := longListJob(t, "1Mi", 200)
	if info, err := os.Stat(j.list()); err == nil {
		t.Errorf("a list of %d bytes is kept", info.Size())
	}
	if got := strings.Count(log.String(), notKept); got != 1 || !log.has("increase the size") {
		t.Errorf("%d lines say that the list is not kept, want one, with what to do\n%s", got, log)
	}
	j.wants(0, 10)
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}
