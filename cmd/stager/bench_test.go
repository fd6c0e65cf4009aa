package main

import (
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/check"
)

func TestBenchFindsWhatLimits(t *testing.T) {
	const mb = 1e6
	for _, tt := range []struct {
		what            string
		disk, one, many float64
		cpu, tiny       float64
		limit, says     string
		sentences       int
	}{
		{"a slow disk", 200 * mb, 100 * mb, 800 * mb, 0.5, 400 * mb, "disk", "by up to 75 %", 1},
		{"busy processors", 2000 * mb, 100 * mb, 1600 * mb, 1.9, 800 * mb, "processors", "uses 1.9 of 2", 1},
		{"distant streams", 2000 * mb, 100 * mb, 780 * mb, 0.5, 780 * mb, "streams", "--connections", 1},
		{"a slow store", 2000 * mb, 100 * mb, 110 * mb, 0.1, 100 * mb, "store", "8 streams read", 1},
		{"small objects", 2000 * mb, 100 * mb, 110 * mb, 0.1, 10 * mb, "store", "195 per second, 9 %", 2},
	} {
		b := benched{Disk: diskSpeed{Write: tt.disk}, Speed: check.Speed{
			One: check.Rate{Requests: 1, Read: tt.one}, Many: check.Rate{Requests: 8, Read: tt.many, ReadCPU: tt.cpu},
			Tiny: check.Rate{FileBytes: check.TinyBytes, Read: tt.tiny},
		}}
		b.judge(2)
		if got := strings.Join(b.Says, " "); b.Limit != tt.limit || len(b.Says) != tt.sentences || !strings.Contains(got, tt.says) {
			t.Errorf("%s: %s, %q; want %s and %q in %d sentences", tt.what, b.Limit, got, tt.limit, tt.says, tt.sentences)
		}
	}
}
