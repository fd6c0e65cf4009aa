package soak

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/bench"
)

// The work of 30 days of a job: a shard every ten seconds, and a checkpoint every half hour.
const (
	monthOfShards      = 30 * 86400 / 10
	monthOfCheckpoints = 30 * 86400 / 1800
)

// Result is what a run has shown.
type Result struct {
	For    time.Duration
	Seed   uint64
	Load   string   // what the machine said of its load at the end
	Broken []string // promises
	Nodes  []Node
	Trends []Judged
	Counts map[string]int // of faults and checks
	Passed bool

	drawings map[string][]bench.Line
}

// Node is what one daemon did.
type Node struct {
	Name    string
	Lives   int
	Work    float64 // shards acknowledged or checkpoints committed
	Horizon float64 // in how many seconds it does the work of 30 days
	Peak    int64   // bytes of its volume
	Says    string
}

// Judged is a series and its trend.
type Judged struct {
	Node, What, Unit string
	Trend
	Noisy bool
}

// result judges all series.
func (s *soak) result() *Result {
	load, _ := os.ReadFile("/proc/loadavg") // for people
	r := &Result{For: s.For, Seed: s.Seed, Load: strings.TrimSpace(string(load)), Broken: s.broken, Counts: s.counts, drawings: make(map[string][]bench.Line)}
	horizons := make(map[*node]float64)
	for _, n := range s.nodes() {
		of := Node{Name: n.name, Lives: n.lives, Work: n.work, Peak: n.peak}
		month := float64(monthOfCheckpoints)
		if n.window > 0 {
			month = monthOfShards
		}
		of.Horizon = month / max(n.work/s.For.Seconds(), 1e-9)
		horizons[n] = of.Horizon
		of.Says = n.says()
		r.Nodes = append(r.Nodes, of)
	}
	for _, key := range slices.Sorted(maps.Keys(s.series)) {
		of := s.series[key]
		r.draw(of)
		if !of.node.steady {
			continue // it began again and again
		}
		r.Trends = append(r.Trends, Judged{of.node.name, of.name, of.unit, trendOf(of.points, of.floor, horizons[of.node]), of.noisy})
	}
	r.Passed = len(r.Broken) == 0
	for _, t := range r.Trends {
		if t.Verdict == Growing || s.Prove && t.Verdict == Undecided && !t.Noisy {
			r.Passed = false
		}
	}
	return r
}

func (r *Result) draw(of *series) {
	l := bench.Line{Name: of.node.name}
	for _, p := range of.points {
		l.Seconds, l.Values = append(l.Seconds, p.at), append(l.Values, p.value)
	}
	title := strings.TrimSuffix(fmt.Sprintf("%s (%s)", of.name, of.unit), " ()")
	r.drawings[title] = append(r.drawings[title], l)
}

// says is what a node has done, for people.
func (n *node) says() string {
	for _, f := range n.feeders {
		if f.node == n {
			l := f.ledger
			return fmt.Sprintf("%d epochs, %d deliveries, %d of them repeated, %d readers killed", l.done, l.delivered, l.redelivered, f.killed)
		}
	}
	for _, v := range n.savers {
		if v.node == n {
			return fmt.Sprintf("%d steps, the newest restored is %d", v.written, v.restored.Load())
		}
	}
	return ""
}

// Write writes soak.md and its drawings into a directory.
func (r *Result) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	r.print(&text)
	for i, title := range slices.Sorted(maps.Keys(r.drawings)) {
		name := fmt.Sprintf("%02d-%s.svg", i+1, strings.NewReplacer(" ", "-", "(", "", ")", "", ",", "", "%", "percent").Replace(title))
		fmt.Fprintf(&text, "\n![%s](%s)\n", title, name)
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(bench.Lines(file, title, r.drawings[title]), file.Close()); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "soak.md"), []byte(text.String()), 0o644)
}

func (r *Result) print(to io.Writer) {
	fmt.Fprintf(to, "# Soak of %v: %s\n\nSeed %d; load of the machine at the end: %s.\n\n", r.For, map[bool]string{true: "passed", false: "FAILED"}[r.Passed], r.Seed, r.Load)
	if len(r.Broken) == 0 {
		fmt.Fprintln(to, "No promise was broken.")
	}
	for _, text := range r.Broken {
		fmt.Fprintf(to, "- BROKEN: %s\n", text)
	}
	fmt.Fprint(to, "\n| daemon | processes | work | 30 days of work in | most of its volume | |\n|---|--:|--:|--:|--:|---|\n")
	for _, n := range r.Nodes {
		fmt.Fprintf(to, "| %s | %d | %.0f | %v | %.1f MiB | %s |\n", n.Name, n.Lives, n.Work, time.Duration(n.Horizon*float64(time.Second)).Round(time.Minute), float64(n.Peak)/(1<<20), n.Says)
	}
	fmt.Fprint(to, "\n| daemon | | level | in 30 days of work | at least | at most | |\n|---|---|--:|--:|--:|--:|---|\n")
	for _, t := range r.Trends {
		fmt.Fprintf(to, "| %s | %s | %s | %s | %s | %s | %s |\n", t.Node, t.What, strings.TrimSpace(fmt.Sprintf("%.3g %s", t.Level, t.Unit)), percent(t.Growth), percent(t.Low), percent(t.High), t.Verdict)
	}
	fmt.Fprint(to, "\n| what happened | times |\n|---|--:|\n")
	names := slices.SortedFunc(maps.Keys(r.Counts), func(a, b string) int { return cmp.Or(cmp.Compare(r.Counts[b], r.Counts[a]), cmp.Compare(a, b)) })
	for _, name := range names {
		fmt.Fprintf(to, "| %s | %d |\n", name, r.Counts[name])
	}
}

func percent(part float64) string {
	if math.IsInf(part, 0) {
		return "?"
	}
	return fmt.Sprintf("%+.0f %%", 100*part)
}

// Print writes the report without its drawings.
func (r *Result) Print(to io.Writer) { r.print(to) }
