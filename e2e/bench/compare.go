package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// Compare writes what differs between two reports as a table in Markdown: for each row that
// both have, the ratio to the peer and stager's CPU time for each GB. A difference counts if
// the Mann-Whitney U test says so of the single pairs, or of the single runs, at the 5 % level.
// Rows that only one report has are named below the table.
func Compare(to io.Writer, a, b Report) {
	if differ := machinesDiffer(a.Start.Machine, b.Start.Machine); len(differ) > 0 {
		fmt.Fprintf(to, "WARNING: the machines differ: %s. Then figures differ for that reason, too.\n\n", strings.Join(differ, ", "))
	}
	fmt.Fprintf(to, "A is %s of %s, B is %s of %s.\n\n", a.Start.Stager, a.Start.Date.UTC().Format("2006-01-02 15:04"), b.Start.Stager, b.Start.Date.UTC().Format("2006-01-02 15:04"))
	fmt.Fprintln(to, "| store | work | peer | ratio A | ratio B | change | p | | CPU s/GB A | CPU s/GB B | change | p | |")
	fmt.Fprintln(to, "|---|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|---|")
	var ratios, costs []difference
	var few []string
	for _, old := range a.Results {
		i := slices.IndexFunc(b.Results, old.sameRow)
		if i < 0 {
			continue
		}
		ratio := differ(old.Ratios, b.Results[i].Ratios)
		cost := differ(old.costs(), b.Results[i].costs())
		fmt.Fprintf(to, "| %s | %s | %s | %s | %s |\n", old.Store, old.Work, old.Peer, ratio.cells("faster", "slower"), cost.cells("more", "less"))
		ratios, costs = append(ratios, ratio), append(costs, cost)
		if ratio.tooFew() {
			few = append(few, fmt.Sprintf("%s %s beside %s has %d and %d", old.Store, old.Work, old.Peer, len(old.Ratios), len(b.Results[i].Ratios)))
		}
	}
	fmt.Fprintf(to, "| geometric mean | | | | | %s | | | | | %s | | |\n", meanChange(ratios), meanChange(costs))
	onlyIn(to, "A", a.Results, b.Results)
	onlyIn(to, "B", b.Results, a.Results)
	if len(few) > 0 {
		fmt.Fprintf(to, "\nToo few pairs to decide: %s; %d are needed in both files (-pairs %[2]d).\n", strings.Join(few, ", "), pairsNeeded())
	}
}

// sameRow reports whether both are of the same work beside the same peer.
func (r Result) sameRow(other Result) bool {
	return r.Store == other.Store && r.Work == other.Work && r.Peer == other.Peer
}

// costs are stager's CPU seconds for each GB, of each run.
func (r Result) costs() (all []float64) {
	for _, s := range r.OurRuns.CPU {
		if r.Bytes > 0 {
			all = append(all, s/float64(r.Bytes)*1e9)
		}
	}
	return all
}

// onlyIn names the rows of one file that the other does not have.
func onlyIn(to io.Writer, name string, these, others []Result) {
	var names []string
	for _, r := range these {
		if !slices.ContainsFunc(others, r.sameRow) {
			names = append(names, fmt.Sprintf("%s %s beside %s", r.Store, r.Work, r.Peer))
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(to, "\nOnly in %s: %s.\n", name, strings.Join(names, ", "))
	}
}

// machinesDiffer returns the facts in which two machines differ, such as "2 and 4 cores".
func machinesDiffer(a, b Machine) (all []string) {
	if a.CPU != b.CPU {
		all = append(all, fmt.Sprintf("%s and %s", a.CPU, b.CPU))
	}
	if a.Cores != b.Cores {
		all = append(all, fmt.Sprintf("%d and %d cores", a.Cores, b.Cores))
	}
	if a.Kernel != b.Kernel {
		all = append(all, fmt.Sprintf("Linux %s and %s", a.Kernel, b.Kernel))
	}
	// Kernels keep a little for themselves, and not always as much.
	if apart := math.Abs(float64(a.Memory - b.Memory)); apart > 0.02*float64(max(a.Memory, b.Memory)) {
		all = append(all, fmt.Sprintf("%.1f and %.1f GiB of memory", float64(a.Memory)/(1<<30), float64(b.Memory)/(1<<30)))
	}
	return all
}

// difference is that of a figure in two reports.
type difference struct {
	a, b   float64 // medians
	change float64 // of the median, as a part of that in A
	benchmath.Comparison
}

// differ tests whether two samples have the same distribution.
func differ(a, b []float64) difference {
	d := difference{Comparison: compareSamples(a, b)}
	if len(a) > 0 && len(b) > 0 {
		d.a, d.b = middle(a), middle(b)
		d.change = d.b/d.a - 1
	}
	return d
}

func compareSamples(a, b []float64) benchmath.Comparison {
	sample := func(values []float64) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	}
	return benchmath.AssumeNothing.Compare(sample(a), sample(b))
}

// cells are both medians, the change, p and the verdict.
func (d difference) cells(more, less string) string {
	if d.N1 == 0 || d.N2 == 0 {
		return " | | | | "
	}
	verdict := "~"
	if d.P < d.Alpha && d.change > 0 {
		verdict = more
	} else if d.P < d.Alpha && d.change < 0 {
		verdict = less
	}
	return fmt.Sprintf("%.2f | %.2f | %+.1f %% | %.3f | %s", d.a, d.b, 100*d.change, d.P, verdict)
}

// tooFew reports whether no figures, however far apart, would be significant.
func (d difference) tooFew() bool {
	n := pairsNeeded()
	return d.N1 > 0 && d.N2 > 0 && d.N1 < n && d.N2 < n
}

// pairsNeeded is how many figures in each of two samples the test needs to decide anything.
func pairsNeeded() int {
	var low, high []float64
	for n := 1; ; n++ {
		low, high = append(low, float64(-n)), append(high, float64(n))
		if c := compareSamples(low, high); c.P < c.Alpha {
			return n
		}
	}
}

// meanChange is the geometric mean of all changes, such as "+1.5 %"; "" of none.
func meanChange(all []difference) string {
	sum, n := 0.0, 0
	for _, d := range all {
		if d.a > 0 && d.b > 0 {
			sum += math.Log(d.b / d.a)
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100*(math.Exp(sum/float64(n))-1))
}
