package backends

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// stepOf returns the step of a page that has share of its keys among names.
func stepOf(names []string, share float64) (step, bool) {
	s := new(shape)
	for _, name := range names {
		s.add(name)
	}
	return s.step("d/", "d/"+names[0], "d/"+names[len(names)-1], share)
}

func numbers(format string, from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprintf(format, i))
	}
	return names
}

func TestStepContinuesNames(t *testing.T) {
	for _, tt := range []struct {
		format   string
		from, to int // of the page
		pages    float64
		want     int // the number that follows
	}{
		{"%06d", 0, 1000, 1, 2000},
		{"%06d", 0, 1000, 10, 11000},
		{"img_%09d.jpg", 3000, 4000, 4, 8000},
		{"%04d/x", 10, 20, 3, 46},
		{"%08x", 0x10000, 0x20000, 3, 0x50000},
		{"%06d", 95000, 96000, 10, 106000}, // it carries
	} {
		is, ok := stepOf(numbers(tt.format, tt.from, tt.to), 1)
		if !ok {
			t.Errorf("%s: got no step", tt.format)
			continue
		}
		got := is.ahead(tt.pages)
		page := tt.to - tt.from
		low, high := fmt.Sprintf("d/"+tt.format, tt.want-page/4), fmt.Sprintf("d/"+tt.format, tt.want+page/4)
		if got < low || got > high {
			t.Errorf("%s: got %q, want something near %s", tt.format, got, fmt.Sprintf(tt.format, tt.want))
		}
		if far := is.distance(got); far < tt.pages*0.8 || far > tt.pages*1.2 {
			t.Errorf("%s: %q is %.2f pages away, want %.0f", tt.format, got, far, tt.pages)
		}
	}
}

func TestStepKnowsWhereNamesEnd(t *testing.T) {
	is, ok := stepOf(numbers("%03d", 800, 900), 1)
	if got := is.ahead(5); !ok || got != "" {
		t.Errorf("behind 999: got %q (%v), want nothing", got, ok)
	}
	if _, ok := stepOf([]string{"a"}, 1); ok {
		t.Error("one name: got a step, want none")
	}
}

// Whatever the names are, a step neither fails nor goes back.
func TestStepOfAnyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-f/.-]{0,80}`)), 2, 50, rapid.ID).Draw(t, "names")
		slices.Sort(names)
		is, ok := stepOf(names, rapid.Float64Range(0.01, 1).Draw(t, "share"))
		if !ok {
			return
		}
		got := is.ahead(rapid.Float64Range(0, 1e6).Draw(t, "pages"))
		if got != "" && !strings.HasPrefix(got, "d/") || len(got) > 200 {
			t.Fatalf("%q: got %q", names, got)
		}
	})
}

func TestSpanKeepsSomeKeysOfAll(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 1000, 100_000} {
		var s span
		for _, name := range numbers("%06d", 0, n) {
			s.add(name)
		}
		if s.n != n || s.samples[0] != "000000" || s.last != fmt.Sprintf("%06d", n-1) || !slices.IsSorted(s.samples) || len(s.samples) < min(n, mostSamples/2) || len(s.samples) > mostSamples {
			t.Errorf("%d keys: got %d, %d samples, %q to %q", n, s.n, len(s.samples), s.samples[0], s.last)
		}
		if far := s.samples[len(s.samples)/2]; n >= 1000 && (far < fmt.Sprintf("%06d", n/3) || far > fmt.Sprintf("%06d", 2*n/3)) {
			t.Errorf("%d keys: the sample in the middle is %q", n, far)
		}
	}
}

// Days were continued up to 99, so that two thirds of the ranges of a dataset with dates had no keys.
func TestShapeKnowsHowLongMonthsAre(t *testing.T) {
	s := new(shape)
	for day := range 90 {
		s.add(time.Date(2020, 1, 1+day, 0, 0, 0, 0, time.UTC).Format("2006-01-02"))
	}
	if got := s.alphabet(len("2006-01-")); got != "0123" {
		t.Errorf("the first digit of a day is one of %q, want one of 0123", got)
	}
	if got := s.alphabet(len("2006-0")); got != digits {
		t.Errorf("the last digit of a month is one of %q, want any", got)
	}
}
