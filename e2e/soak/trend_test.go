package soak

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sampled is a run of 1,800 s that is sampled every 3 s. Its noise is that of faults which last for 15 s.
func sampled(value func(at float64) float64, noise float64, random *rand.Rand) (series []point) {
	fault := 0.0
	for i := range 600 {
		if i%5 == 0 {
			fault = random.NormFloat64()
		}
		at := 3 * float64(i)
		series = append(series, point{at, value(at) + noise*(fault+random.NormFloat64()/4)})
	}
	return series
}

func TestTrendJudges(t *testing.T) {
	const horizon = 3000 // 30 days of work, of which the run did 18
	for _, tt := range []struct {
		name  string
		value func(at float64) float64
		noise float64
		want  Verdict
	}{
		{"constant", func(float64) float64 { return 40 }, 0, Flat},
		{"noise of a tenth", func(float64) float64 { return 40 }, 4, Flat},
		{"warm-up", func(at float64) float64 { return 40 * (1 - math.Exp(-at/60)) }, 1, Flat},
		{"one step", func(at float64) float64 { return 40 + 4*math.Floor(at/900) }, 1, Flat},
		{"a tenth in 30 days", func(at float64) float64 { return 40 + 4*at/horizon }, 1, Flat},
		{"three times as much in 20 days", func(at float64) float64 { return 40 + 120*at/horizon }, 1, Growing},
		{"one more with each checkpoint", func(at float64) float64 { return 30 + at/2 }, 2, Growing},
		{"double in 30 days", func(at float64) float64 { return 40 + 64*at/horizon }, 8, Undecided},
		{"one more, of next to nothing", func(at float64) float64 { return 1 + at/1800 }, 0.1, Flat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(20) {
				series := sampled(tt.value, tt.noise, rand.New(rand.NewPCG(seed, 2)))
				if got := trendOf(series, 16, horizon); got.Verdict != tt.want {
					t.Fatalf("seed %d: got %+v, want %s", seed, got, tt.want)
				}
			}
		})
	}
}

// The limits hold as often as they say, or more often, although samples that follow one another are alike.
func TestTrendLimitsHold(t *testing.T) {
	const runs = 2000
	wrong := 0
	for seed := range uint64(runs) {
		got := trendOf(sampled(func(float64) float64 { return 100 }, 5, rand.New(rand.NewPCG(seed, 3))), 1, 3000)
		if got.Low > 0 || got.High < 0 {
			wrong++
		}
	}
	if most := runs * 3 / 100; wrong > most {
		t.Errorf("the slope of a flat series is outside its limits in %d of %d runs, want at most %d", wrong, runs, most)
	}
}

func TestTrendOfFewSamplesIsUndecided(t *testing.T) {
	for n := range 6 {
		if got := trendOf(make([]point, n), 1, 1000); got.Verdict != Undecided {
			t.Errorf("%d samples: got %+v, want undecided", n, got)
		}
	}
}
