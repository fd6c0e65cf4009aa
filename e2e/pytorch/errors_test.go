package pytorch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// bound is how long an error may take on a loaded machine, where the patience is 2 s.
const bound = 30 * time.Second

// raised is what errors.py prints.
type raised struct {
	Classes []string `json:"classes"` // of the error and of its causes; none: there was no error
	Text    string   `json:"text"`    // of the first that is stager's
	Seconds float64  `json:"seconds"`
}

// goWrong orders an error beside a stager of its own, and returns what was raised.
func (l *lab) goWrong(t *testing.T, s *trainers, kind string) (r raised) {
	t.Helper()
	own := *l
	own.t = t
	n := own.planned("s3://digits/errors-"+strings.ReplaceAll(t.Name(), "/", "-")+"/", count/3)
	defer n.destroy()
	if kind == "full" {
		fill(t, n.dir+"/out")
	}
	n.start()
	own.await(t, n.socket)
	socket := n.socket
	if kind == "absent" {
		socket = n.dir + "/nobody.sock"
	}
	s.order(kind + " " + socket + " " + n.dir + "/out")
	line := s.next()
	if line == "paused" {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait() // killed
		if kind == "restarts" {
			n.start()
		}
		s.order("go on")
		line = s.next()
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if line := s.next(); line != "over" {
		t.Fatalf("got %q, want over", line)
	}
	return r
}

// fill makes a directory a file system with room for 1 MiB.
func fill(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		live.Require(t, "pytorch", errors.New("root alone can mount a small file system"))
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// check fails the test unless an error has a class among its causes, and one sentence, in time. The
// class of no error is "", that of a library's own "Exception".
func (r raised) check(t *testing.T, class string) {
	t.Helper()
	switch {
	case class == "" && len(r.Classes) > 0, class != "" && len(r.Classes) == 0, class != "" && class != "Exception" && !slices.Contains(r.Classes, class):
		t.Errorf("got %v: %s, want %q", r.Classes, r.Text, class)
	case class != "" && class != "Exception" && (strings.ContainsAny(r.Text, "\n") || len(r.Text) < 20):
		t.Errorf("got %q, want one sentence", r.Text)
	}
	if got := time.Duration(r.Seconds * float64(time.Second)); got > bound {
		t.Errorf("got the error after %v, want it within %v", got, bound)
	}
	t.Logf("%.1f s: %s: %s", r.Seconds, strings.Join(r.Classes, ", "), r.Text)
}

// Each library that saves by stager is given a stager that is absent, that dies in the middle of a
// save or starts again there, a full disk, and a directory that belongs to no output. Nothing hangs,
// and what is raised is, or has among its causes, an error of stager's with one sentence. Where the
// library writes the files by itself, a full disk is an error of its own.
func TestSavesThatGoWrongRaiseErrors(t *testing.T) {
	l := newLab(t)
	for _, way := range []struct{ name, module, full string }{
		{"checkpoint", "", "NoSpaceError"},
		{"dcp", "torchdata", "NoSpaceError"}, // a PyTorch of today
		{"dcp_async", "torchdata", "NoSpaceError"},
		{"lightning", "lightning", "NoSpaceError"},
		{"ray", "ray.train", "NoSpaceError"},
		{"hf", "accelerate", "Exception"},
		{"orbax", "orbax.checkpoint", "Exception"},
	} {
		t.Run(way.name, func(t *testing.T) {
			python := l.trainer.Python
			if way.module != "" {
				python = importing(t, way.module)
			}
			t.Setenv("MADE", t.TempDir())
			s := l.trainersOf(t, python, "", 10*time.Minute, "errors.py", "save", way.name)
			for kind, class := range map[string]string{
				"absent": "UnreachableError", "dies": "UnreachableError", "restarts": "", "full": way.full, "outside": "RejectedError",
			} {
				t.Run(kind, func(t *testing.T) { l.goWrong(t, s, kind).check(t, class) })
			}
		})
	}
}

// Each loader is given a stager that is absent or dies in mid-epoch, the state of another input or of
// another data set, and a fork in mid-epoch: nothing hangs, and each error has its class.
func TestLoadersThatGoWrongRaiseErrors(t *testing.T) {
	l := newLab(t)
	for _, loader := range []struct {
		kind, module string
		workers      int
	}{
		{"batches", "", 0},
		{"samples", "", 0},
		{"samples", "", 2},
		{"shards", "", 2},
		{"webdataset", "", 2},
		{"stateful", "torchdata", 2},
		{"hf", "datasets", 2},
		{"ray", "ray.train", 0},
		{"tf", "tensorflow", 0},
		{"grain", "grain", 0},
	} {
		t.Run(fmt.Sprintf("%s, %d workers", loader.kind, loader.workers), func(t *testing.T) {
			python := l.trainer.Python
			if loader.module != "" {
				python = importing(t, loader.module)
			}
			s := l.trainersOf(t, python, "", 10*time.Minute, "errors.py", "load", loader.kind, strconv.Itoa(loader.workers))
			for kind, class := range map[string]string{
				"absent": "UnreachableError", "dies": "UnreachableError", "other": "RejectedError", "foreign": "RejectedError",
				"fork": "UsageError", "fork-anew": "UsageError",
			} {
				t.Run(kind, func(t *testing.T) { l.goWrong(t, s, kind).check(t, class) })
			}
		})
	}
}
