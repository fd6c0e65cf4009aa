package pytorch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// uses runs loader.py to its end, with a kill after each of some numbers of samples, and returns
// the numbers of the samples that were used in each epoch.
func (l *lab) uses(t *testing.T, socket string, workers, shuffle int, kind string, kills ...string) (used [][]int) {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state.json")
	args := []string{state, strconv.Itoa(epochs), strconv.Itoa(workers), strconv.Itoa(shuffle), kind}
	for _, kill := range kills {
		cmd := l.command(socket)
		cmd.Args = append(append([]string{l.trainer.Python, "-B", "testdata/loader.py"}, args...), kill)
		out, err := cmd.CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || bytes.Contains(out, []byte("AssertionError")) {
			t.Fatalf("with %s the trainer ended with %v, want it to fail\n%s", kill, err, out)
		}
	}
	cmd := l.command(socket)
	cmd.Args = append([]string{l.trainer.Python, "-B", "testdata/loader.py"}, args...)
	if err := json.Unmarshal(l.run(cmd), &used); err != nil {
		t.Fatal(err)
	}
	return used
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
