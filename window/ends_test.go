package window

import (
	"slices"
	"testing"
	"time"
)

func TestEndsAreRetried(t *testing.T) {
	var s ends
	now := time.Unix(1000, 0)
	first, alarm := alarms()
	s.add(3)
	s.add(4)
	if got := s.take(now, alarm); !slices.Equal(got, []int{3, 4}) || !s.empty() {
		t.Errorf("got %v, want 3 and 4, once", got)
	}
	s.retry(now, 4)
	if got := s.take(now, alarm); len(got) > 0 || s.empty() || !first.Equal(now.Add(lookEvery)) {
		t.Errorf("got %v and an alarm at %v, want none before %v", got, first, now.Add(lookEvery))
	}
	if got := s.take(now.Add(lookEvery), alarm); !slices.Equal(got, []int{4}) {
		t.Errorf("got %v, want 4", got)
	}
}
