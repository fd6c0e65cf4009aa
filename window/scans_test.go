package window

import (
	"slices"
	"testing"
	"time"
)

// alarms returns an alarm that keeps the earliest time.
func alarms() (first *time.Time, alarm func(time.Time)) {
	first = new(time.Time)
	return first, func(at time.Time) {
		if first.IsZero() || at.Before(*first) {
			*first = at
		}
	}
}

func TestScansLeaveTimeForOtherWork(t *testing.T) {
	var s scans
	now := time.Unix(1000, 0)
	first, alarm := alarms()
	if !s.due(now, alarm) {
		t.Error("the first scan is not due at once")
	}
	s.done(now, now.Add(time.Second))
	now = now.Add(time.Second)
	if s.due(now.Add(19*time.Second), alarm) || !first.Equal(now.Add(20*time.Second)) {
		t.Errorf("after a scan of 1s the next one is due at %v, want 20s later", first)
	}
	s.request()
	if s.due(now.Add(4*time.Second), alarm) || !first.Equal(now.Add(5*time.Second)) {
		t.Errorf("after a scan of 1s a requested one is due at %v, want 5s later", first)
	}
	if !s.due(now.Add(5*time.Second), alarm) {
		t.Error("the requested scan is not due")
	}
	if s.due(now.Add(6*time.Second), alarm) {
		t.Error("one request made two scans due")
	}
}

func TestScansReportForeignFilesOnce(t *testing.T) {
	var s scans
	for i, step := range []struct{ found, added, all []string }{
		{nil, nil, []string{}},
		{[]string{"b", "a"}, []string{"b", "a"}, []string{"a", "b"}},
		{[]string{"a", "b", "c"}, []string{"c"}, []string{"a", "b", "c"}},
		{[]string{"c"}, nil, []string{"c"}},
		{[]string{"a", "c"}, []string{"a"}, []string{"a", "c"}},
	} {
		if added := s.saw(step.found); !slices.Equal(added, step.added) {
			t.Errorf("scan %d: got %q added, want %q", i, added, step.added)
		}
		if all := s.foreignNames(); all == nil || !slices.Equal(all, step.all) {
			t.Errorf("scan %d: got %q in all, want %q", i, all, step.all)
		}
	}
}
