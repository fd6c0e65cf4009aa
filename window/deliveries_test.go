package window

import (
	"testing"
	"time"
)

func TestDeliveriesCountDeathsThatAreApart(t *testing.T) {
	d := deliveries{history: map[seq]history{}}
	now := time.Unix(1000, 0)
	a := seq{0, 7}
	for i, step := range []struct {
		after   time.Duration
		against blame
		want    int
		counts  bool
	}{
		{0, readerDied, 1, true},
		{deathsApart - 1, readerDied, 1, false},
		{1, readerDied, 2, true},
		{0, noBlame, 2, false},
		{0, readerRefused, 3, true},
	} {
		now = now.Add(step.after)
		if h, counts := d.blame(now, a, step.against); h.failures != step.want || counts != step.counts {
			t.Errorf("step %d: got %d failures (counts: %t), want %d (%t)", i, h.failures, counts, step.want, step.counts)
		}
	}
}

func TestDeliveriesCountAttempts(t *testing.T) {
	d := deliveries{history: map[seq]history{}, meters: NewMetrics(nil).of("train", 1)}
	a, rd := seq{0, 7}, &reader{name: "r"}
	for n := 1; n <= 2; n++ {
		if got := d.attempt(a); got != n {
			t.Errorf("got attempt %d, want %d", got, n)
		}
		d.deliver(&lease{reader: rd, e: &entry{seq: a}}, n)
	}
	if d.stats.delivered != 2 || d.stats.redelivered != 1 || d.course.inOrder(0) {
		t.Errorf("got %+v (in order: %t), want 2 deliveries, 1 of them again", d.stats, d.course.inOrder(0))
	}
	d.withdraw(a)
	d.attempted(a, 1)
	if got := d.history[a].attempts; got != 1 {
		t.Errorf("got %d attempts after one was withdrawn, want 1", got)
	}
	d.attempted(a, 3)
	if got := d.history[a].attempts; got != 3 || !d.recorded(0) || d.recorded(1) {
		t.Errorf("got %d attempts, want 3 in epoch 0 alone", got)
	}
}
