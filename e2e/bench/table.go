package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine describes where and with what the figures came to be.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Stager string `json:"stager"`
	Memory int64  `json:"memory"` // bytes
}

// ThisMachine asks the kernel and the binary.
func ThisMachine(stager string) Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), Stager: VersionOf(stager)}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			m.CPU = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if bytes, err := memoryOf("MemTotal:"); err == nil {
		m.Memory = bytes
	}
	return m
}

// VersionOf is the version of a stager, or "unknown".
func VersionOf(stager string) string { return versionOf(stager, "version") }

// versionOf is the first line of what a command says of itself.
func versionOf(command string, arg string) string {
	out, err := exec.Command(command, arg).Output() //nolint:noctx // it says a line and ends
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// Table writes results as they come, in Markdown.
type Table struct {
	Out      io.Writer
	Patience time.Duration // of all rows; 0: as it is without
}

// Begin writes what stands above the rows.
func (t Table) Begin(m Machine, pairs int) {
	most := fmt.Sprintf("%v (%v where there is a goal)", patience, goalPatience)
	if t.Patience > 0 {
		most = t.Patience.String()
	}
	fmt.Fprintf(t.Out, "%s, %d cores, Linux %s, %s, %s; medians of at least %d pairs run in turn, and of more for up to %s until the standard error of the ratio, which is the median of the pairs', is %.0f %%. stager's RSS is to be %d MB at most in every row; other goals stand beside theirs.\n\n", m.CPU, m.Cores, m.Kernel, m.Go, m.Stager, pairs, most, 100*sure, mostMemory/1_000_000)
	fmt.Fprintln(t.Out, "| store | work | peer | stager s | peer s | floor s | ratio | ± % | pairs | CPU s/GB | peer's | floor's | RSS MB | peer's | goal |")
	fmt.Fprintln(t.Out, "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")
}

// Machine writes what stands above tables without pairs.
func (t Table) Machine(m Machine, runs int) {
	fmt.Fprintf(t.Out, "%s, %d cores, Linux %s, %s, %s; medians of %d runs\n", m.CPU, m.Cores, m.Kernel, m.Go, m.Stager, runs)
}

// Row writes one.
func (t Table) Row(r Result) {
	mb := func(s Sample) int64 { return (s.RSS + 500_000) / 1_000_000 }
	floorWall, floorCPU := r.floorFigures()
	fmt.Fprintf(t.Out, "| %s | %s | %s | %.2f | %.2f | %s | %.2f | %.0f | %d | %.2f | %.2f | %s | %d | %d | %s |\n", r.Store, r.Work, r.Peer,
		r.Ours.Wall.Seconds(), r.Theirs.Wall.Seconds(), floorWall, r.Ratios.Median(), 100*r.Ratios.Uncertainty(), len(r.Ratios),
		r.perGB(r.Ours), r.perGB(r.Theirs), floorCPU, mb(r.Ours), mb(r.Theirs), r.goal())
}

// floorFigures are the floor's wall time in seconds and CPU time for each GB, or "" without a floor.
func (r Result) floorFigures() (wall, cpu string) {
	if len(r.FloorRuns.Wall) == 0 {
		return "", ""
	}
	return fmt.Sprintf("%.2f", r.Floor.Wall.Seconds()), fmt.Sprintf("%.2f", r.perGB(r.Floor))
}

// Readings writes what the trainers among the results saw, as a table of its own.
func (t Table) Readings(results []Result) {
	begun := false
	line := func(with string, s Sample) {
		r := s.Reading
		if r == nil {
			return
		}
		if !begun {
			fmt.Fprintln(t.Out, "\n| trainer with | images/s | first after s | waited s | of its time | for shards s | on disk MB | cores busy |")
			fmt.Fprintln(t.Out, "|---|--:|--:|--:|--:|--:|--:|--:|")
			begun = true
		}
		starved := ""
		if r.Starved != nil {
			starved = fmt.Sprintf("%.2f", *r.Starved)
		}
		fmt.Fprintf(t.Out, "| %s | %.1f | %.2f | %.2f | %.1f %% | %s | %d | %.0f %% |\n", with, float64(r.Images)/r.Seconds, r.First,
			r.Waited, 100*r.Waited/r.Seconds, starved, r.OnDisk/1_000_000, 100*r.Busy)
	}
	for _, r := range results {
		line("stager", r.Ours)
		line(r.Peer, r.Theirs)
	}
}
