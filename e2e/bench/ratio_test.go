package bench

import (
	"math"
	"testing"
	"time"
)

func TestPairsAreRunUntilTheRatioIsSure(t *testing.T) {
	alike := Ratios{2, 2.04, 1.96}
	apart := Ratios{2, 2.3, 1.9}
	for _, tt := range []struct {
		name   string
		r      Ratios
		least  int
		took   time.Duration
		enough bool
	}{
		{"none", nil, 1, patience, false},
		{"one is all that was asked for", Ratios{2}, 1, 0, true},
		{"too few", alike, 4, 0, false},
		{"alike", alike, 3, 0, true},
		{"apart", apart, 3, patience - 1, false},
		{"apart, and it takes too long", apart, 3, patience, true},
		{"too few, however long it takes", apart, 4, time.Hour, false},
		{"one that many others outweigh", Ratios{2, 2.02, 1.98, 2, 2, 2.02, 1.98, 2.4}, 3, 0, true},
	} {
		if got := tt.r.enough(tt.least, tt.took, patience); got != tt.enough {
			t.Errorf("%s: enough is %v, want %v", tt.name, got, tt.enough)
		}
	}
}

func TestRatiosAreTakenByTheirMedian(t *testing.T) {
	for _, tt := range []struct {
		r                   Ratios
		median, uncertainty float64
	}{
		{Ratios{2}, 2, 0},
		{Ratios{2, 2, 2}, 2, 0},
		{Ratios{1, 3}, 2, math.Pi / 2 / math.Sqrt2},
		{Ratios{3, 1, 2, 2}, 2, math.Pi / 2 * 2 / 3 / 2 / 2},
		{Ratios{2, 200, 2}, 2, math.Pi / 2 * 99 / 2 / math.Sqrt(3) * 2 / 2},
	} {
		m, u := tt.r.Median(), tt.r.Uncertainty()
		if m != tt.median || math.Abs(u-tt.uncertainty) > 1e-9 {
			t.Errorf("%v: median %v, uncertain by %v, want %v, by %v", tt.r, m, u, tt.median, tt.uncertainty)
		}
	}
}
