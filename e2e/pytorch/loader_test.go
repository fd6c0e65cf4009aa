package pytorch

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// trainers are those of loader.py, one after the other.
type trainers struct {
	t      *testing.T
	cmd    *exec.Cmd
	orders io.WriteCloser
	lines  *bufio.Scanner
}

// trainers starts loader.py with a state, which must end within some time: to wait for ever is what might be
// wrong with it.
func (l *lab) trainers(t *testing.T, python, socket string, workers, shuffle int, kind string, within time.Duration) *trainers {
	t.Helper()
	return l.trainersOf(t, python, socket, within, "loader.py", filepath.Join(t.TempDir(), "state.json"), strconv.Itoa(l.epochs), strconv.Itoa(workers), strconv.Itoa(shuffle), kind)
}

// trainersOf starts a program of testdata.
func (l *lab) trainersOf(t *testing.T, python, socket string, within time.Duration, program string, args ...string) *trainers {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, python, append([]string{"-B", "testdata/" + program}, args...)...)
	cmd.Env, cmd.Stderr = l.command(socket).Env, t.Output()
	if python != l.trainer.Python { // Debian's packages are not built for its own
		cmd.Env = append(cmd.Env, "PYTHONPATH="+l.client())
	}
	orders, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	for _, err := range []error{err1, err2, cmd.Start()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return &trainers{t, cmd, orders, lines}
}

// order writes a line.
func (s *trainers) order(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.orders, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next line.
func (s *trainers) next() string {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatalf("the trainers ended with %v, %v", s.lines.Err(), s.cmd.Wait())
	}
	return s.lines.Text()
}

// kill runs a trainer that is killed, and returns how it ended; struck is called when stager is to be killed.
func (s *trainers) kill(kill string, struck func()) (code int) {
	s.t.Helper()
	s.order(kill)
	line := s.next()
	if line == "stager" {
		struck()
		line = s.next()
	}
	if _, err := fmt.Sscanf(line, "ended "+kill+" %d", &code); err != nil {
		s.t.Fatalf("%q: %v", line, err)
	}
	return code
}

// uses runs the last trainer to its end, and returns the samples that counted in each epoch.
func (s *trainers) uses() (used [][]int) {
	s.t.Helper()
	if err := s.orders.Close(); err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(s.next()), &used); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Fatal(err)
	}
	return used
}

// uses runs loader.py to its end, with a kill after each of some numbers of samples, and returns
// the numbers of the samples that were used in each epoch.
func (l *lab) uses(t *testing.T, socket string, workers, shuffle int, kind string, kills ...string) (used [][]int) {
	t.Helper()
	s := l.trainers(t, l.trainer.Python, socket, workers, shuffle, kind, 3*time.Minute)
	for _, kill := range kills {
		want := -9
		if strings.HasPrefix(kill, "worker") {
			want = 1 // the loader says so
		}
		if code := s.kill(kill, nil); code != want {
			t.Fatalf("with %s the trainer ended with %d, want %d", kill, code, want)
		}
	}
	return s.uses()
}

// A shard is acknowledged when the training loop has used its samples. So whatever is killed,
// the trainer resumes at its own state, and uses each sample once in each epoch.
func TestLoaderUsesSamplesOnce(t *testing.T) {
	l := newLab(t)
	for _, test := range []struct {
		workers, shuffle int
		kind             string
		kills            []string
	}{
		{2, 0, "samples", []string{"worker@300", "trainer@500", "trainer@900"}},
		{3, 64, "samples", []string{"trainer@400", "worker@600"}},
		{2, 0, "shards", []string{"worker@250", "trainer@450"}},
		{0, 0, "webdataset", []string{"trainer@700"}},
		{2, 64, "webdataset", []string{"worker@300", "trainer@500"}},
	} {
		t.Run(fmt.Sprintf("%s/%d workers/shuffle %d", test.kind, test.workers, test.shuffle), func(t *testing.T) {
			own := *l
			own.t = t
			used := own.uses(t, own.window(), test.workers, test.shuffle, test.kind, test.kills...)
			outcome{Seen: used}.each(t)
		})
	}
}

// Blocks of samples go to the workers in turn, so their number changes nothing in the order.
func TestLoaderOrderIsThatOfAnyNumberOfWorkers(t *testing.T) {
	l := newLab(t)
	want := l.uses(t, l.window(), 0, 64, "samples")
	if got := l.uses(t, l.window(), 3, 64, "samples"); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		t.Errorf("got another order with 3 workers than with none:\n%v\n%v", got, want)
	}
}

// A worker remained for ever that had started while its trainer was killed: PyTorch asks for the process to watch
// when the dataset is ready, and then it was the one that takes in orphans.
func TestWorkerEndsWithATrainerKilledAtItsStart(t *testing.T) {
	l := newLab(t)
	s := l.trainersOf(t, l.trainer.Python, "", time.Minute, "orphan.py")
	worker, err := strconv.Atoi(s.next())
	if err != nil {
		t.Fatal(err)
	}
	ended := time.AfterFunc(30*time.Second, func() {
		t.Errorf("worker %d has not ended 30 s after its trainer", worker)
		if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	for s.lines.Scan() { // until nobody has its output open
	}
	ended.Stop()
	if err := s.cmd.Wait(); err == nil {
		t.Error("the trainer was not killed")
	}
}
