package soak

import (
	"math"
	"slices"
)

// point is a sample of a series: a value after so many seconds.
type point struct{ at, value float64 }

// Verdict is what a Trend says about a series.
type Verdict string

// The verdicts. A series is flat or grows when the limits of its slope prove it.
const (
	Flat      Verdict = "flat"
	Undecided Verdict = "undecided"
	Growing   Verdict = "growing"
)

const (
	warmUp   = 0.25  // the part of a run that does not count
	blocks   = 24    // into which the rest is cut, at most
	shortest = 10    // seconds of a block: longer than a fault
	fewest   = 8     // blocks that a verdict takes
	quantile = 2.326 // of the normal distribution, at 99 %
)

// Trend is the slope of a series and what follows from it.
//
// Samples that follow one another are alike, since a fault lasts for several: they are not independent,
// and a test that takes them so is too sure. So the run without its warm-up is cut into blocks that are
// longer than a fault, and the median of each block is one observation. The slope is the median of the
// slopes between all pairs of blocks (Theil–Sen), which outliers do not move, and its limits are those of
// Sen (1968), from the distribution of Kendall's rank statistic: they hold whatever the distribution of the
// noise. Each holds with a probability of 99 %.
//
// Growth is the slope times the horizon, the seconds in which this run does the work of 30 days, as a part
// of the level. A series is flat if even the upper limit would not double it within the horizon, so that a
// run that is too short or too noisy proves nothing. It grows if the lower limit would, and has grown by
// a tenth during the run at least: memory settles in the first minutes, which is no trend.
type Trend struct {
	Level             float64 // median, but not less than the floor of its series
	Growth, Low, High float64 // within the horizon, as a part of Level
	Verdict           Verdict
}

// trendOf judges a series. floor is what Level is at least, so that a doubling of next to nothing does not
// count.
func trendOf(series []point, floor, horizon float64) Trend {
	observed := medians(series)
	var slopes, values []float64
	for i, a := range observed {
		values = append(values, a.value)
		for _, b := range observed[i+1:] {
			slopes = append(slopes, (b.value-a.value)/(b.at-a.at))
		}
	}
	t := Trend{Level: floor, Low: math.Inf(-1), High: math.Inf(1), Verdict: Undecided}
	slices.Sort(slopes)
	slices.Sort(values)
	if len(observed) > 0 {
		t.Level = max(middle(values), floor)
	}
	if len(observed) < fewest {
		return t
	}
	n := float64(len(observed))
	spread := quantile * math.Sqrt(n*(n-1)*(2*n+5)/18)
	low := int(math.Floor((float64(len(slopes)) - spread) / 2))
	grown := func(i int) float64 { return slopes[min(max(i, 0), len(slopes)-1)] * horizon / t.Level }
	t.Growth, t.Low, t.High = middle(slopes)*horizon/t.Level, grown(low), grown(len(slopes)-1-low)
	switch {
	case t.High < 1:
		t.Verdict = Flat
	case t.Low > 1 && t.Low*(series[len(series)-1].at-series[0].at) > horizon/10:
		t.Verdict = Growing
	}
	return t
}

// medians returns the median of each block after the warm-up, at the middle of the block.
func medians(series []point) (out []point) {
	if len(series) == 0 {
		return nil
	}
	from, to := series[0].at, series[len(series)-1].at
	from += warmUp * (to - from)
	count := max(min(blocks, int((to-from)/shortest)), 1)
	length := (to - from) / float64(count)
	for b := range count {
		var values []float64
		begin := from + float64(b)*length
		for _, p := range series {
			if p.at >= begin && p.at < begin+length {
				values = append(values, p.value)
			}
		}
		if len(values) > 0 {
			slices.Sort(values)
			out = append(out, point{begin + length/2, middle(values)})
		}
	}
	return out
}

// middle returns the median of sorted values.
func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
