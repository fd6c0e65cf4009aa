package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/floor"
)

func TestMain(m *testing.M) {
	for name, run := range map[string]func([]string) error{MeasureFlag: Measure, FloorFlag: floor.Run} {
		if len(os.Args) > 1 && os.Args[1] == name {
			if err := run(os.Args[2:]); err != nil {
				panic(err)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func TestGoalMissedIsReported(t *testing.T) {
	goal := Goal{Ratio: 2, PerGB: 0.5, PerFile: 70 * time.Microsecond}
	took := func(wall, cpu time.Duration, rss int64) Sample { return Sample{Wall: wall, CPU: cpu, RSS: rss} }
	for _, tt := range []struct {
		name string
		r    Result
		want string
	}{
		{"just reached", Result{Ours: took(time.Second, 70*time.Millisecond, 64_000_000), Goal: goal}, "≥ 2.0×, ≤ 0.50 s/GB, ≤ 70 µs a file"},
		{"slow", Result{Ours: took(1010*time.Millisecond, 0, 0), Goal: Goal{Ratio: 2}}, "≥ 2.0×; missed: wall 1.98×"},
		{"costly", Result{Ours: took(1, 501*time.Millisecond, 0), Goal: goal}, "≥ 2.0×, ≤ 0.50 s/GB, ≤ 70 µs a file; missed: CPU 0.501 s/GB, CPU 501.0 µs a file"},
		{"no goal but that of all", Result{Ours: took(time.Hour, time.Hour, 64_000_001)}, "missed: RSS 64.0 MB"},
		{"nothing to say", Result{Ours: took(time.Hour, time.Hour, 1)}, ""},
		{"a trainer's memory", Result{Ours: Sample{RSS: 1 << 30, Reading: &Reading{}}}, ""},
	} {
		tt.r.Theirs.Wall, tt.r.Bytes, tt.r.Files = 2*time.Second, 1_000_000_000, 1000
		tt.r.Ratios = Ratios{tt.r.Theirs.Wall.Seconds() / tt.r.Ours.Wall.Seconds()}
		tt.r.Missed = tt.r.missed()
		var line strings.Builder
		Table{Out: &line}.Row(tt.r)
		if !strings.HasSuffix(line.String(), "| "+tt.want+" |\n") {
			t.Errorf("%s: the row is %s want its end %q", tt.name, line.String(), tt.want)
		}
	}
}

// newLab is one for little data, with stager built. The test is skipped where s5cmd cannot be built.
func newLab(t *testing.T) *Lab {
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or each process that measures ends a second later
	dir := t.TempDir()
	lab := &Lab{Stager: filepath.Join(dir, "stager"), Dir: filepath.Join(dir, "lab"), Disk: filepath.Join(dir, "disk"), Log: os.Stderr}
	lab.To, lab.Data = lab.Dir, Data{Size: 1 << 20, Files: 2}
	for _, directory := range []string{lab.Dir, lab.Disk} {
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := peer(t.Context(), "s5cmd", "github.com/peak/s5cmd/v2", os.Stderr); err != nil {
		live.Require(t, "s3", err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", lab.Stager, "./cmd/stager")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := build.Run(); err != nil {
		t.Fatal(err)
	}
	return lab
}

// testRows runs the rows of a suite once, compares them and their goals with want, and looks for what is left.
func testRows(t *testing.T, suite Suite, lab *Lab, want string) {
	var got []string
	note, err := Run(t.Context(), suite, lab, 1, nil, func(r Result) {
		goal := r.Goal
		for slow, fast := range map[float64]float64{1.2: 2.6, 1.3: 1.8} { // the disk may be either: TestGoalOfDisk
			if strings.Contains(r.Store, " disk") && goal.Ratio == slow {
				goal = disk{rate: fastDisk}.goal(slow, fast)
			}
		}
		got = append(got, strings.TrimSuffix(r.Store+": "+r.Work+": "+r.Peer+": "+goal.String(), ": "))
		if large := strings.Contains(r.Store, " disk") && r.Files == 0; (len(r.FloorRuns.Wall) > 0) != (r.Goal != Goal{} && !large) {
			t.Errorf("%s %s has the floor %v, and the goal %v", r.Store, r.Work, r.FloorRuns, r.Goal)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("the rows are\n%s\nwant\n%s", text, want)
	}
	if strings.Contains(want, " disk: ") && !strings.Contains(note, "the disk is ") || strings.Contains(note, "not known") {
		t.Errorf("the note is %q, want the disk's file system in it", note)
	}
	for _, directory := range []string{lab.Dir, lab.Disk} {
		if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
			t.Errorf("%s still holds %v, %v", directory, left, err)
		}
	}
}

// A disk that is slower than what arrives leaves less to gain.
func TestGoalOfDisk(t *testing.T) {
	for rate, want := range map[float64]Goal{0.5e9: {Ratio: 1.2}, 0.99e9: {Ratio: 1.2}, 1e9: {Ratio: 2.6, PerGB: 0.35}, 2e9: {Ratio: 2.6, PerGB: 0.35}} {
		if got := (disk{rate: rate}).goal(1.2, 2.6); got != want {
			t.Errorf("%.2f GB/s: got goal %v, want %v", rate/1e9, got, want)
		}
	}
}

// The floor's ratio is beside what was missed: it is the most that can be reached.
func TestMissedGoalIsBesideTheFloor(t *testing.T) {
	r := Result{
		Bytes: 1e9, Ours: Sample{Wall: 2 * time.Second}, Theirs: Sample{Wall: 3 * time.Second}, Ratios: Ratios{1.5, 1.5, 1.5}, Goal: Goal{Ratio: 3},
		TheirRuns: Runs{Wall: []float64{3, 4, 2}}, Floor: Sample{Wall: time.Second, CPU: time.Second / 2}, FloorRuns: Runs{Wall: []float64{1, 2, 1}},
	}
	r.Missed = r.missed()
	var line strings.Builder
	Table{Out: &line}.Row(r)
	if want := "| 2.00 | 3.00 | 1.00 | 1.50 | 0 | 3 | 0.00 | 0.00 | 0.50 | 0 | 0 | ≥ 3.0×; missed: wall 1.50× of the floor's 2.00× |\n"; !strings.HasSuffix(line.String(), want) {
		t.Errorf("got row %s want its end %q", line.String(), want)
	}
}

// The rows with goals are run as they are, on little data.
func TestGoalRowsRun(t *testing.T) {
	testRows(t, Suite{Name: "goals", Start: goals}, newLab(t), `s3, quick, memory: get 4 MiB: s5cmd: ≥ 2.2×, ≤ 0.75 s/GB
s3, quick, disk: get 4 MiB: s5cmd: ≥ 2.6×, ≤ 0.35 s/GB
s3, quick, disk: get 64 × 64 KiB: s5cmd: ≥ 1.8×, ≤ 0.35 s/GB
s3, quick, memory: get 20 × 50 KiB: s5cmd: ≥ 3.0×, ≤ 70 µs a file
s3, quick, disk: get 20 × 50 KiB: s5cmd: ≥ 2.3×
s3, quick, memory: put 2 MiB: s5cmd: ≥ 5.0×, ≤ 0.40 s/GB
s3, quick, memory: put 10 × 20 KiB: s5cmd: ≥ 5.0×
s3, quick, 20ms away: get 10 × 50 KiB: s5cmd: ≥ 3.0×`)
	testRows(t, Suite{Name: "https", Start: secure}, newLab(t), `s3, quick, https: get 4 MiB: s5cmd: ≥ 1.6×, ≤ 0.80 s/GB
s3, quick, https: get 20 × 50 KiB: s5cmd: ≥ 7.6×, ≤ 3.00 s/GB
s3, quick, https: put 2 MiB: s5cmd: ≥ 3.5×, ≤ 0.80 s/GB
s3, quick, https, 20ms away: get 10 × 50 KiB: s5cmd`)
}

func TestQuickRowsRun(t *testing.T) {
	lab := newLab(t)
	suite := Suites[slices.IndexFunc(Suites, func(s Suite) bool { return s.Name == "quick" })]
	testRows(t, suite, lab, `s3, quick, memory: get 512 KiB: s5cmd
s3, quick, memory: put 512 KiB: s5cmd
s3, quick, disk: get 64 × 8 KiB: s5cmd
s3, quick, memory: get 2 × 50 KiB: s5cmd
s3, quick, memory: put 2 × 20 KiB: s5cmd`)

	lab.Other = lab.Stager
	testRows(t, Suite{Start: quick}, lab, `s3, quick, memory: get 512 KiB: s5cmd
s3, quick, memory: get 512 KiB: the other stager
s3, quick, memory: put 512 KiB: s5cmd
s3, quick, memory: put 512 KiB: the other stager
s3, quick, disk: get 64 × 8 KiB: s5cmd
s3, quick, disk: get 64 × 8 KiB: the other stager
s3, quick, memory: get 2 × 50 KiB: s5cmd
s3, quick, memory: get 2 × 50 KiB: the other stager
s3, quick, memory: put 2 × 20 KiB: s5cmd
s3, quick, memory: put 2 × 20 KiB: the other stager`)

	lab.NoPeers = true
	testRows(t, Suite{Start: quick}, lab, `s3, quick, memory: get 512 KiB: the other stager
s3, quick, memory: put 512 KiB: the other stager
s3, quick, disk: get 64 × 8 KiB: the other stager
s3, quick, memory: get 2 × 50 KiB: the other stager
s3, quick, memory: put 2 × 20 KiB: the other stager`)
}

func TestDisksNeedPeers(t *testing.T) {
	_, err := Run(t.Context(), Suite{Name: "disks", Start: disks}, &Lab{NoPeers: true}, 1, nil, nil)
	if want := "disks: another stager cannot take the place of the peers"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// The pairs of this row stay apart for ever.
func TestPatienceOfSuiteReplacesTheUsualOne(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	runs := 0
	row := Row{Reset: nothing, Check: nothing, Bytes: 1, Ours: func() *exec.Cmd { return exec.Command("true") }} //nolint:noctx // measure runs it
	row.Theirs = func() *exec.Cmd {
		runs++
		return exec.Command("sleep", []string{"0", "0.1"}[runs%2]) //nolint:noctx // measure runs it
	}
	start := func(context.Context, *Lab) ([]Row, string, func() error, error) {
		return []Row{row}, "", func() error { return nil }, nil
	}
	if _, err := Run(t.Context(), Suite{Start: start, Patience: 1}, nil, 3, nil, func(r Result) {
		if len(r.Ratios) != 3 || len(r.OurRuns.Wall) != 3 || len(r.TheirRuns.CPU) != 3 {
			t.Errorf("got %d pairs, %v and %v, want 3 runs of each", len(r.Ratios), r.OurRuns, r.TheirRuns)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		row  Row
		want time.Duration
	}{
		{Row{}, patience},
		{Row{Goal: Goal{Ratio: 1}}, goalPatience},
		{Row{Goal: Goal{Ratio: 1}, Rivals: []Rival{{}}}, rivalPatience},
	} {
		if got := tt.row.usualPatience(); got != tt.want {
			t.Errorf("%+v: got patience %v, want %v", tt.row, got, tt.want)
		}
	}
	var usual, own strings.Builder
	Table{Out: &usual}.Begin(Machine{}, 3)
	Table{Out: &own, Patience: quickPatience}.Begin(Machine{}, 3)
	for got, want := range map[string]string{usual.String(): "for up to 2m0s (5m0s where there is a goal) until", own.String(): "for up to 15s until"} {
		if !strings.Contains(got, want) {
			t.Errorf("the table begins with %q, want %q in it", got, want)
		}
	}
}
