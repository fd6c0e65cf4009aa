package window

import (
	"errors"
	"testing"
)

// Opening a shard holds no lock, so that its lease may end and its file be removed meanwhile. That is
// not a loss of the file.
func TestOpenOfALeaseThatEndsMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 100, Epochs: 1})
		b.idle()
		l := b.must(b.lease("r"))
		_, err := b.openBy(l.ID, func(e *entry) (Shard, error) {
			b.ok(b.Ack(l.ID))
			b.idle()
			return b.stage.openHeld(e)
		})
		if !errors.Is(err, ErrNoLease) || errors.Is(err, ErrLost) {
			t.Errorf("got %v, want %v", err, ErrNoLease)
		}
		if s := b.Status(); s.Acknowledged != 1 || s.Redelivered != 0 {
			t.Errorf("got %d acknowledged, %d redelivered, want 1 and 0", s.Acknowledged, s.Redelivered)
		}
		shard, err := b.Open(b.must(b.lease("r")).ID)
		b.ok(err)
		b.ok(shard.Close())
	})
}
