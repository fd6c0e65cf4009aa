package backends

import "testing"

func TestPartLengthKeepsToMaxParts(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		capabilities Capabilities
		size, want   int64
	}{
		{Capabilities{}, 0, 1},
		{Capabilities{}, 5, 5},
		{Capabilities{PartSize: 16 * mib}, 1 << 50, 16 * mib},
		{Capabilities{PartSize: 16 * mib, MaxParts: 10_000}, 0, 16 * mib},
		{Capabilities{PartSize: 16 * mib, MaxParts: 10_000}, 160_000 * mib, 16 * mib},
		{Capabilities{PartSize: 16 * mib, MaxParts: 10_000}, 160_000*mib + 1, 32 * mib},
		{Capabilities{PartSize: 16 * mib, MaxParts: 10_000}, 5 << 40, 528 * mib},
	} {
		if got := tt.capabilities.PartLength(tt.size); got != tt.want {
			t.Errorf("PartLength(%d) of %+v = %d, want %d", tt.size, tt.capabilities, got, tt.want)
		}
	}
}
