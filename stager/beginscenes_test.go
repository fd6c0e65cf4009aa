package stager

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// The states of a window that begins before its source is listed.
const (
	beforePages = "before the first page"
	atBeginning = "with the first pages"
	continuing  = "while it continues" // the list is complete, and the directory does not name it yet
	withWhole   = "with the whole list"
)

// scene is a job in one of these states. Positions 0 to 2 are acknowledged and a reader holds position 3,
// unless no page is listed.
type scene struct {
	*job
	state string
	said  *said
	acked map[int]int           // how often a position was acknowledged
	held  []api.LeaseResponse   // leases that are not ended
	stamp []byte                // what the directory must name again before the window can continue
	waits map[string]chan reply // requests
}

// reply is a response of the API.
type reply struct {
	code int
	body string
}

func newScene(t *testing.T, state string) *scene {
	t.Helper()
	j, log := savingJob(t)
	s := &scene{job: j, state: state, said: log, acked: map[int]int{}, waits: map[string]chan reply{}}
	if state == beforePages {
		j.pages.allow(0)
		j.start()
		j.await("listing", func() bool { return j.Snapshot().Inputs[0].Listing != nil })
		return s
	}
	j.begun()
	for range 3 {
		s.done(j.lease())
	}
	s.held = append(s.held, j.lease())
	switch state {
	case continuing:
		s.block()
		j.pages.allow(-1)
		j.await("continuing", func() bool {
			return log.has(`level=WARN msg="cannot record that the source is listed, trying again"`)
		})
	case withWhole:
		j.listed()
	}
	return s
}

// stampPath is the file that names the plan whose state is in the window's directory.
func (s *scene) stampPath() string { return filepath.Join(s.dir, "train", disk.Private, "plan") }

// block makes the directory unable to name another plan.
func (s *scene) block() {
	s.t.Helper()
	text, err := os.ReadFile(s.stampPath())
	if err := errors.Join(err, os.Remove(s.stampPath()), os.MkdirAll(filepath.Join(s.stampPath(), "foreign"), 0o755)); err != nil {
		s.t.Fatal(err)
	}
	s.stamp = text
}

// unblock undoes block.
func (s *scene) unblock() {
	s.t.Helper()
	if s.stamp == nil {
		return
	}
	err := os.RemoveAll(s.stampPath())
	if s.Daemon == nil { // otherwise the window writes it
		err = errors.Join(err, os.WriteFile(s.stampPath(), s.stamp, 0o644))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.stamp = nil
}

// done acknowledges a lease.
func (s *scene) done(l api.LeaseResponse) {
	s.t.Helper()
	if l.End {
		s.t.Fatalf("%s: got the end, want a shard", s.state)
	}
	s.ack(l)
	s.acked[l.Pos]++
}

// next leases and acknowledges the positions from first to last.
func (s *scene) next(first, last int) {
	s.t.Helper()
	for want := first; want <= last; want++ {
		l := s.lease()
		if l.Pos != want {
			s.t.Errorf("%s: got %+v, want position %d", s.state, l, want)
		}
		s.done(l)
	}
}

// want sends a request and checks the response.
func (s *scene) want(method, path, body string, code int, text string) string {
	s.t.Helper()
	got, answer := s.call(method, path, body)
	if got != code || !strings.Contains(answer, text) {
		s.t.Errorf("%s: %s %s: got %d %s, want %d %s", s.state, method, path, got, answer, code, text)
	}
	return answer
}

// send sends a request that waits. replied returns its response.
func (s *scene) send(method, path, body string) {
	got := make(chan reply, 1)
	s.waits[method] = got
	j := s.job
	go func() {
		code, text := j.call(method, path, body)
		got <- reply{code, text}
	}()
}

func (s *scene) replied(method string, code int, text string) {
	s.t.Helper()
	if got := <-s.waits[method]; got.code != code || !strings.Contains(got.body, text) {
		s.t.Errorf("%s: a %s that waits: got %d %s, want %d %s", s.state, method, got.code, got.body, code, text)
	}
}

// over ends the process.
func (s *scene) over() {
	s.t.Helper()
	if err := s.finish(); err != nil {
		s.t.Errorf("%s: %v", s.state, err)
	}
	s.Daemon = nil
	s.unblock()
}

// again starts another process, which lists three pages, and has a window then.
func (s *scene) again() {
	s.t.Helper()
	s.pages.allow(3)
	s.opened()
}

// rest takes all that is left, and ends the process. Every shard was acknowledged once.
func (s *scene) rest() {
	s.t.Helper()
	s.unblock()
	s.pages.allow(-1)
	if s.Daemon == nil {
		s.start()
	}
	s.await("open", func() bool { return s.Snapshot().Inputs[0].Window != nil })
	for _, l := range s.held {
		switch code, body := s.call("POST", "/v1/leases/"+l.Lease+"/ack", ""); code {
		case http.StatusNoContent:
			s.acked[l.Pos]++
		case http.StatusGone: // delivered again
		default:
			s.t.Errorf("%s: an acknowledgement: got %d %s", s.state, code, body)
		}
	}
	s.drainWindow()
	for pos := range 4 * pageSize {
		if s.acked[pos] != 1 {
			s.t.Errorf("%s: position %d was acknowledged %d times", s.state, pos, s.acked[pos])
		}
	}
	s.await("done", func() bool { return s.Snapshot().Inputs[0].Window.Done })
	if w := s.Snapshot().Inputs[0].Window; w.Beginning || w.Peak > w.Limit {
		s.t.Errorf("%s: got %+v, want a whole window that stayed within its limit", s.state, w)
	}
	s.over()
}

// drainWindow acknowledges all that is left.
func (s *scene) drainWindow() {
	s.t.Helper()
	for {
		w, err := s.window("train")
		if err != nil {
			s.t.Fatal(err)
		}
		l, err := w.Lease(s.t.Context(), window.LeaseRequest{Reader: "rest", Wait: time.Minute})
		if errors.As(err, new(*window.EndError)) {
			return
		}
		if err := errors.Join(err, w.Ack(l.ID)); err != nil {
			s.t.Fatalf("%s: %v", s.state, err)
		}
		s.acked[l.Pos]++
	}
}

// kill continues in a copy of the directory as it is now, which is what a kill of the process leaves.
// named means that it was killed after the directory had named the whole plan.
func (s *scene) kill(named bool) {
	s.t.Helper()
	to, stamp := s.t.TempDir(), s.stamp
	var copied copyOf
	s.await("at rest, and copied", func() bool {
		if !s.atRest() {
			return false
		}
		// A file of stager's own may be replaced meanwhile.
		var err error
		if copied, err = copyTree(s.t, s.dir, to); errors.Is(err, fs.ErrNotExist) {
			to = s.t.TempDir()
			return false
		} else if err != nil {
			s.t.Fatal(err)
		}
		return true
	})
	s.over()
	if named {
		other := beginJob(s.t, 0, "")
		other.mem = s.mem
		other.pages.allow(-1)
		other.opened()
		other.listed()
		text, err := os.ReadFile(filepath.Join(other.dir, "train", disk.Private, "plan"))
		if err := errors.Join(err, other.finish()); err != nil {
			s.t.Fatal(err)
		}
		stamp = text
	}
	if stamp != nil {
		copied.stamp(stamp)
	}
	s.plan, s.dir = strings.ReplaceAll(s.plan, s.dir, to), to
}

// atRest reports whether the window has nothing to fetch or to remove.
func (s *scene) atRest() bool {
	in := s.Snapshot().Inputs[0]
	if in.Window == nil {
		return true
	}
	there := in.Window.Items[window.Ready] + in.Window.Items[window.Leased]
	published, _ := filepath.Glob(filepath.Join(s.dir, "train", "ready", "e*"))
	begun, _ := filepath.Glob(filepath.Join(s.dir, "train", disk.Private, "whole", "*"))
	return there+in.Window.Finished == in.Window.Positions && len(published) == there && len(begun) == 0
}

// copyOf is a copy of a job's directory.
type copyOf struct {
	t  *testing.T
	to string
}

// stamp makes the window's directory name a plan.
func (c copyOf) stamp(text []byte) {
	c.t.Helper()
	path := filepath.Join(c.to, "train", disk.Private, "plan")
	if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, text, 0o644)); err != nil {
		c.t.Fatal(err)
	}
}

// copyTree copies a directory, and keeps which names are links to one file.
func copyTree(t *testing.T, from, to string) (copyOf, error) {
	links := map[uint64]string{}
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name := filepath.Join(to, strings.TrimPrefix(path, from))
		if e.IsDir() {
			return os.MkdirAll(name, info.Mode().Perm())
		}
		ino := info.Sys().(*syscall.Stat_t).Ino
		if other := links[ino]; other != "" {
			return os.Link(other, name)
		}
		links[ino] = name
		text, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(name, text, info.Mode().Perm()), os.Chtimes(name, info.ModTime(), info.ModTime()))
	})
	return copyOf{t, to}, err
}
