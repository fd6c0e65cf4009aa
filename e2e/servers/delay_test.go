package servers

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// All connections share a lane: what two send takes as long as if one had sent it.
func TestConnectionsShareTheBandwidth(t *testing.T) {
	for _, tt := range []struct {
		bandwidth int64
		want      time.Duration
	}{
		{1000, 2*time.Second - late},
		{4000, time.Second/2 - late},
		{0, 0}, // any
	} {
		synctest.Test(t, func(t *testing.T) {
			l, began := lane{bandwidth: tt.bandwidth}, time.Now()
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					for range 10 {
						l.pass(100)
					}
				})
			}
			all.Wait()
			if got := time.Since(began); got != tt.want {
				t.Errorf("2,000 bytes at %d a second took %v, want %v", tt.bandwidth, got, tt.want)
			}
		})
	}
}
