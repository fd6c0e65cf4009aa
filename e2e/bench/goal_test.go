package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == MeasureFlag {
		if err := Measure(os.Args[2:]); err != nil {
			panic(err)
		}
		os.Exit(0)
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

// The rows with goals are run as they are, on little data.
func TestGoalRowsRun(t *testing.T) {
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
	var got []string
	note, err := Run(t.Context(), Suite{Name: "goals", Start: goals}, lab, 1, "", func(r Result) {
		got = append(got, r.Store+": "+r.Work+": "+r.Goal.String())
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `s3, quick, memory: get 4 MiB: ≥ 2.2×, ≤ 0.75 s/GB
s3, quick, disk: get 4 MiB: ≥ 3.0×, ≤ 0.35 s/GB
s3, quick, disk: get 64 × 64 KiB: ≥ 1.7×, ≤ 0.35 s/GB
s3, quick, memory: get 20 × 50 KiB: ≥ 3.3×, ≤ 70 µs a file
s3, quick, disk: get 20 × 50 KiB: ≥ 2.3×
s3, quick, memory: put 2 MiB: ≥ 4.5×, ≤ 0.40 s/GB
s3, quick, memory: put 10 × 20 KiB: ≥ 5.0×
s3, quick, 20ms away: get 10 × 50 KiB: ≥ 2.0×`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("the rows are\n%s\nwant\n%s", text, want)
	}
	if !strings.Contains(note, "the disk is ") || strings.Contains(note, "not known") {
		t.Errorf("the note is %q, want the disk's file system in it", note)
	}
	for _, directory := range []string{lab.Dir, lab.Disk} {
		if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
			t.Errorf("%s still holds %v, %v", directory, left, err)
		}
	}
}
