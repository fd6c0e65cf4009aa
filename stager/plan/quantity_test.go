package plan

import (
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"": 0, "0": 0, "-0": 0, "+5": 5, "1e3": 1000, "500M": 500e6, "60Gi": 60 << 30, "1.5Gi": 3 << 29, "7.5Ei": 15 << 59, "0.000000001G": 1,
		"60GB": 60e9, "60GiB": 60 << 30, "1.5GB": 1.5e9, "200MB": 200e6, "3KB": 3000, "3K": 3000, "3kB": 3000, "3KiB": 3072, "17B": 17,
		"9223372036854775806": math.MaxInt64 - 1,
	} {
		var got Bytes
		if err := got.set(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, int64(got), err, want)
		}
		if err := got.set(want.String()); err != nil || got != want {
			t.Errorf("%q, written as %s, became %d, %v", text, want, int64(got), err)
		}
	}
	for text, word := range map[string]string{
		"60Go": "write 500M", "60GBB": "write 500M", "60 GB": "write 500M", "ten": "write 500M", "1 Gi": "write 500M", "-1": "negative", "-1Gi": "negative",
		"100m": "whole number", "0.5": "whole number", "1e-3": "whole number",
		"8Ei": "below 8Ei", "1e99": "below 8Ei", "9223372036854775807": "below 8Ei", "99999999999999999999999": "below 8Ei",
		"1e9999999": "write 500M", "1" + strings.Repeat("0", 1000): "write 500M", // short texts that are expensive to parse
	} {
		var got Bytes
		if err := got.set(text); err == nil || !strings.Contains(err.Error(), word) || got != 0 {
			t.Errorf("%q: got %d, %v; want an error with %q", text, int64(got), err, word)
		}
	}
}

func TestBytesAreWrittenAsKubernetesWritesThem(t *testing.T) {
	for shift := range 63 {
		for _, odd := range []int64{-1, 0, 1, 2} {
			for _, times := range []int64{1, 3, 1000} {
				n := times*(1<<shift) + odd
				if got, want := Bytes(n).String(), resource.NewQuantity(n, resource.BinarySI).String(); got != want {
					t.Errorf("%d: got %s, want %s", n, got, want)
				}
			}
		}
	}
}

func TestDuration(t *testing.T) {
	var got Duration
	if err := got.set("1h30m"); err != nil || time.Duration(got) != 90*time.Minute {
		t.Errorf("1h30m: got %v, %v", got, err)
	}
	for _, bad := range []string{"", "10", "1d", "-1s", "soon"} {
		if err := got.set(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}
