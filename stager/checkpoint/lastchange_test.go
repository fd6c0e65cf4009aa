package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// A scan that finds several complete checkpoints evaluates them one after the other, and the last
// one counted as the newest: of step-90 and step-100 this was step-90, by its name. restore then
// went back to it. What counts is when the files were written, also before stager started.
func TestNewestStepIsTheOneWrittenLast(t *testing.T) {
	for _, steps := range [][]int{{90, 100}, {100, 90}, {9, 10, 100}, {100, 9, 10}, {10, 100, 9}, {100, 10, 9}} {
		for _, apart := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
			for _, started := range []int{0, 1, len(steps)} { // how many were written when stager started
				t.Run(fmt.Sprintf("%d %v apart, %d before the start", steps, apart, started), func(t *testing.T) {
					inBubble(t, func(t *testing.T) { oneScanFinds(t, steps, apart, started) })
				})
			}
		}
	}
}

func oneScanFinds(t *testing.T, steps []int, apart time.Duration, started int) {
	b, dir := mem.New(), t.TempDir()
	var u *Uploader
	for i, step := range steps {
		if i == started {
			u = newUploader(t, dir, b, nil)
			pass(t, u)
		}
		name := filepath.Join(dir, fmt.Sprintf("step-%d", step))
		write(t, name, map[string]string{"weights": fmt.Sprint("weights of ", step)})
		if err := os.Chtimes(filepath.Join(name, "weights"), time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(apart)
	}
	if u == nil {
		u = newUploader(t, dir, b, nil)
	}
	settled(t, u)
	if got, _ := restoreNewest(t, b); got.Step != int64(steps[len(steps)-1]) {
		t.Errorf("restore takes step %d, want %d, which was written last", got.Step, steps[len(steps)-1])
	}
}

// Between two scans a state is reached. Programs that set other times do not change this.
func TestLastChangeLiesBetweenTwoScans(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := now.Add(-time.Minute)
	for _, c := range []struct {
		name   string
		times  []time.Time
		before time.Time
		want   time.Time
	}{
		{"written between", []time.Time{before.Add(-time.Hour), before.Add(time.Second)}, before, before.Add(time.Second)},
		{"times kept by a copy", []time.Time{before.Add(-time.Hour)}, before, before},
		{"a time in the future", []time.Time{now.Add(time.Hour)}, before, now},
		{"first scan", []time.Time{before.Add(-time.Hour)}, time.Time{}, before.Add(-time.Hour)},
		{"no files", nil, before, before},
	} {
		var files []local
		for _, at := range c.times {
			files = append(files, local{MTime: at.UnixNano()})
		}
		if got := lastChange(files, c.before, now); !got.Equal(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
