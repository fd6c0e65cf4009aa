package bench

import (
	"strings"
	"testing"
	"time"
)

// reportOf has a row for each work, whose CPU seconds for each GB are half of its ratios.
func reportOf(stager string, rows map[string][]float64) Report {
	r := Report{Start: Start{
		Machine: Machine{CPU: "any", Cores: 2, Kernel: "6.1", Stager: stager, Memory: 16 << 30},
		Date:    time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC),
	}}
	for _, work := range []string{"clear", "unclear", "few", "old", "new"} {
		if ratios, ok := rows[work]; ok {
			r.Results = append(r.Results, Result{Store: "s3", Work: work, Peer: "s5cmd", Bytes: 2e9, Ratios: ratios, OurRuns: Runs{CPU: ratios}})
		}
	}
	return r
}

func TestCompareMarksWhatIsSignificant(t *testing.T) {
	a := reportOf("stager 1", map[string][]float64{"clear": {1, 1.02, 1.01, 0.99, 0.98}, "unclear": {1, 2, 3, 4, 5}, "few": {1, 1, 1}, "old": {1}})
	b := reportOf("stager 2", map[string][]float64{"clear": {2, 2.02, 2.01, 1.99, 1.98}, "unclear": {2, 3.1, 3.5, 3.3, 2.9}, "few": {9, 9, 9}, "new": {1}})
	var ab, ba strings.Builder
	Compare(&ab, a, b)
	Compare(&ba, b, a)
	const want = `A is stager 1 of 2026-11-29 10:00, B is stager 2 of 2026-11-29 10:00.

| store | work | peer | ratio A | ratio B | change | p | | CPU s/GB A | CPU s/GB B | change | p | |
|---|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|---|
| s3 | clear | s5cmd | 1.00 | 2.00 | +100.0 % | 0.008 | faster | 0.50 | 1.00 | +100.0 % | 0.008 | more |
| s3 | unclear | s5cmd | 3.00 | 3.10 | +3.3 % | 1.000 | ~ | 1.50 | 1.55 | +3.3 % | 1.000 | ~ |
| s3 | few | s5cmd | 1.00 | 9.00 | +800.0 % | 0.100 | ~ | 0.50 | 4.50 | +800.0 % | 0.100 | ~ |
| geometric mean | | | | | +165.0 % | | | | | +165.0 % | | |

Only in A: s3 old beside s5cmd.

Only in B: s3 new beside s5cmd.

Too few pairs to decide: s3 few beside s5cmd has 3 and 3; 4 are needed in both files (-pairs 4).
`
	if got := ab.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if row := "| s3 | clear | s5cmd | 2.00 | 1.00 | -50.0 % | 0.008 | slower | 1.00 | 0.50 | -50.0 % | 0.008 | less |\n"; !strings.Contains(ba.String(), row) {
		t.Errorf("got\n%s\nwant the row\n%s", ba.String(), row)
	}
}

func TestCompareWarnsOfAnotherMachine(t *testing.T) {
	a := reportOf("stager 1", nil)
	for name, tt := range map[string]struct {
		change func(*Machine)
		want   string
	}{
		"CPU":            {func(m *Machine) { m.CPU = "other" }, "any and other"},
		"cores":          {func(m *Machine) { m.Cores = 4 }, "2 and 4 cores"},
		"kernel":         {func(m *Machine) { m.Kernel = "6.2" }, "Linux 6.1 and 6.2"},
		"memory":         {func(m *Machine) { m.Memory = 8 << 30 }, "16.0 and 8.0 GiB of memory"},
		"two facts":      {func(m *Machine) { m.Cores, m.CPU = 4, "other" }, "any and other, 2 and 4 cores"},
		"a bit of it":    {func(m *Machine) { m.Memory -= 1 << 20 }, ""},
		"another stager": {func(m *Machine) { m.Stager = "stager 2" }, ""},
	} {
		b := a
		tt.change(&b.Start.Machine)
		var out strings.Builder
		Compare(&out, a, b)
		first, _, _ := strings.Cut(out.String(), "\n")
		warning, warned := strings.CutPrefix(first, "WARNING: the machines differ: ")
		if got, _, _ := strings.Cut(warning, ". "); got != tt.want && warned || warned != (tt.want != "") {
			t.Errorf("%s: got the first line %q, want a warning %q", name, first, tt.want)
		}
	}
}
