package window

import (
	"errors"
	"io"
	"sync"
	"testing"
	"time"
)

// Opening a shard holds no lock, so that its lease may end and its file be removed meanwhile.
func TestOpenOfALeaseThatEndsMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(200, 10), Size: 40, Epochs: 1})
		ended := b.start(t.Context())
		var wg sync.WaitGroup
		for {
			l, err := b.Lease(t.Context(), LeaseRequest{Reader: "r", Wait: time.Hour, Bound: true})
			if isEnd(err, 0) {
				break
			}
			b.must(l, err)
			wg.Go(func() {
				if err := b.Ack(l.ID); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				shard, err := b.Open(l.ID)
				if err != nil {
					if !errors.Is(err, ErrNoLease) {
						t.Errorf("got %v, want the shard or %v", err, ErrNoLease)
					}
					return
				}
				defer shard.Close()
				if data, err := io.ReadAll(shard.File); err != nil || len(data) != 10 {
					t.Errorf("got %d bytes (%v), want 10", len(data), err)
				}
			})
		}
		wg.Wait()
		b.ok(<-ended)
	})
}
