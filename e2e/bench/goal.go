package bench

import (
	"fmt"
	"strings"
	"time"
)

// mostMemory is what stager may take in any row, in bytes.
const mostMemory = 64_000_000

// Goal is what a row is to reach. What is 0 is not asked.
type Goal struct {
	Ratio   float64       `json:"ratio,omitempty"`   // of wall times, at least
	PerGB   float64       `json:"perGB,omitempty"`   // CPU seconds, at most
	PerFile time.Duration `json:"perFile,omitempty"` // CPU time, at most
}

func (g Goal) String() string {
	var all []string
	if g.Ratio > 0 {
		all = append(all, "≥ "+strings.TrimSuffix(fmt.Sprintf("%.2f", g.Ratio), "0")+"×")
	}
	if g.PerGB > 0 {
		all = append(all, fmt.Sprintf("≤ %.2f s/GB", g.PerGB))
	}
	if g.PerFile > 0 {
		all = append(all, fmt.Sprintf("≤ %d µs a file", g.PerFile.Microseconds()))
	}
	return strings.Join(all, ", ")
}

// missed tells which goals the result did not reach, and what it came to.
func (r Result) missed() (all []string) {
	if r.Ratios.Median() < r.Goal.Ratio {
		all = append(all, fmt.Sprintf("wall %.2f×", r.Ratios.Median()))
		if floor := r.floorRatio(); floor > 0 {
			all[0] += fmt.Sprintf(" of the floor's %.2f×", floor)
		}
	}
	if got := r.perGB(r.Ours); r.Goal.PerGB > 0 && got > r.Goal.PerGB {
		all = append(all, fmt.Sprintf("CPU %.3f s/GB", got))
	}
	if r.Goal.PerFile > 0 && r.Ours.CPU > r.Goal.PerFile*time.Duration(r.Files) {
		all = append(all, fmt.Sprintf("CPU %.1f µs a file", float64(r.Ours.CPU.Nanoseconds())/1e3/float64(r.Files)))
	}
	if r.Ours.Reading == nil && r.Ours.RSS > mostMemory { // of a trainer it is the trainer's
		all = append(all, fmt.Sprintf("RSS %.1f MB", float64(r.Ours.RSS)/1e6))
	}
	return all
}

// goal is the last column: what is asked, and what was missed.
func (r Result) goal() string {
	var words []string
	if asked := r.Goal.String(); asked != "" {
		words = append(words, asked)
	}
	if len(r.Missed) > 0 {
		words = append(words, "missed: "+strings.Join(r.Missed, ", "))
	}
	return strings.Join(words, "; ")
}
