package window

import (
	"slices"
	"testing"
	"time"
)

func TestRemovalsCountLeavingBytesOnce(t *testing.T) {
	var r removals
	now := time.Unix(1000, 0)
	first, alarm := alarms()
	e := entriesAt(Acked, 0, 1, 2)
	r.add(e[0])
	r.carryOver(e[1])
	r.add(e[2])
	if r.leaving != 20 || r.empty() {
		t.Errorf("got %d bytes leaving, want 20", r.leaving)
	}
	if got := r.take(now, alarm); !slices.Equal(got, e) || r.leaving != 20 || !r.empty() {
		t.Errorf("got %d entries and %d bytes leaving, want 3 and 20 until they are tried", len(got), r.leaving)
	}
	r.tried(e[0])
	r.tried(e[0])
	r.tried(e[2])
	r.open(e[2])
	if r.leaving != 0 {
		t.Errorf("got %d bytes leaving after the attempts, want 0", r.leaving)
	}
	r.zombiesAt = now.Add(time.Second)
	if got := r.take(now, alarm); len(got) > 0 || !first.Equal(r.zombiesAt) {
		t.Errorf("got %d entries and an alarm at %v, want none before %v", len(got), first, r.zombiesAt)
	}
	if got := r.take(r.zombiesAt, alarm); !slices.Equal(got, e[2:]) {
		t.Errorf("got %d entries, want the one that was open", len(got))
	}
	r.checked(now.Add(time.Second))
	if r.zombiesAt != now.Add(time.Second) {
		t.Error("the next attempt was delayed although no file is open")
	}
	r.open(e[2])
	r.checked(now.Add(time.Second))
	if want := now.Add(time.Second + lookEvery); r.zombiesAt != want {
		t.Errorf("the next attempt is at %v, want %v", r.zombiesAt, want)
	}
}

func TestRemovalsAreWithdrawn(t *testing.T) {
	var r removals
	e := entriesAt(Acked, 0, 1)
	r.add(e[0])
	r.add(e[1])
	if got := r.withdraw(); !slices.Equal(got, e) || r.leaving != 0 || !r.empty() || e[0].leaving {
		t.Errorf("got %d entries and %d bytes leaving, want 2 and 0", len(got), r.leaving)
	}
}
