package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/plan"
)

// ParseBytes parses a number of bytes in the format of plans. It may not be empty.
func ParseBytes(text string) (int64, error) {
	b, err := plan.ParseBytes(strings.TrimSpace(text))
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("%q is not a number of bytes: write 200GB, 60Gi or a whole number", text)
	}
	return int64(b), err
}

// ParseSize parses the size of an input, with or without the number of objects: 2TB/2000, 2TB.
func ParseSize(text string) (s Size, err error) {
	size, objects, counted := strings.Cut(text, "/")
	if s.Bytes, err = ParseBytes(size); err != nil {
		return s, err
	}
	if !counted {
		return s, nil
	}
	if s.Objects, err = strconv.ParseInt(objects, 10, 64); err != nil || s.Objects < 1 {
		return s, fmt.Errorf("%q is not a number of objects: write SIZE/OBJECTS, such as 2TB/2000", objects)
	}
	return s, nil
}

// bits are the units of network bandwidth.
var bits = []struct {
	unit  string
	times float64
}{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// ParseRate parses a bandwidth and returns bytes per second: 10Gbit/s, 1.2GB/s, 200Mi.
func ParseRate(text string) (float64, error) {
	plain := strings.TrimSuffix(strings.TrimSpace(text), "/s")
	for _, b := range bits {
		number, ok := strings.CutSuffix(plain, b.unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
			break
		}
		return n * b.times / 8, nil
	}
	if n, err := ParseBytes(plain); err == nil {
		return float64(n), nil
	}
	return 0, fmt.Errorf("%q is not a bandwidth: write 10Gbit/s, 1.2GB/s or 200Mi", text)
}
