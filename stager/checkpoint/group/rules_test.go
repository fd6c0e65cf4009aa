package group

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// Each rule of the protocol is needed: without it, an exploration finds a run that violates a
// property. Rule 8, on restoring, has its own world; see restore_test.go.
func TestRulesAreNeeded(t *testing.T) {
	for _, tt := range []struct {
		rule int
		sc   scenario
		want string // part of the violated property
		long bool   // takes seconds
	}{
		{0, scenario{n: 2, saves: []int64{1}, mode: "rank0"}, "never committed", false},
		{1, scenario{n: 2, saves: []int64{1}, mode: "rank0", second: 1}, "is alive", false},
		{2, scenario{n: 2, saves: []int64{1}, mode: "each", replace: 1, brief: true}, "COMMIT mixes run", false},
		{3, scenario{n: 2, saves: []int64{1}, mode: "job", halves: true}, "COMMIT of half", false},
		{4, scenario{n: 2, saves: []int64{1, 1}, mode: "each"}, "COMMIT mixes run", false},
		{ruleOfWritings, scenario{n: 2, saves: []int64{1, 1}, mode: "each"}, "COMMIT mixes run", false},
		{ruleOfOrder, scenario{n: 2, saves: []int64{2, 1}, mode: "job"}, "never committed", false},
		{ruleOfRewrites, scenario{n: 2, saves: []int64{1, 1}, mode: "each", away: 1, victim: 1, brief: true}, "never committed", true},
		{5, scenario{n: 2, saves: []int64{1, 2}, mode: "each"}, "is not committed", false},
		{6, scenario{n: 2, saves: []int64{1}, mode: "each"}, "COMMIT without the part", false},
		{7, scenario{n: 2, saves: []int64{1}, mode: "rank0", replace: 1, victim: 2, brief: true}, "never committed", false},
		{ruleOfLeaving, scenario{n: 2, saves: []int64{1}, mode: "each", leave: 1}, "never committed", false},
		{10, scenario{n: 2, saves: []int64{1}, mode: "each", sweep: 1}, "is missing", false},
	} {
		t.Run(fmt.Sprintf("rule-%d", tt.rule), func(t *testing.T) {
			if tt.long && !full() {
				live.Require(t, "trial", fmt.Errorf("rule %d is turned off with STAGER_TRIAL=full alone, which takes minutes", tt.rule))
			}
			sc := tt.sc
			sc.off = rule(tt.rule)
			r := explore(&sc, 400_000)
			if !strings.Contains(r.bad, tt.want) {
				t.Fatalf("without rule %d: got %q after %d states (cut %v), want %q", tt.rule, r.bad, r.states, r.cut, tt.want)
			}
			t.Logf("without rule %d, after %d states: %v", tt.rule, r.states, r)
		})
	}
}
