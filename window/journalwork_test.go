package window

import (
	"testing"
	"time"
)

func TestJournalSyncsOneAtATime(t *testing.T) {
	var j journal
	now := time.Unix(1000, 0)
	first, alarm := alarms()
	if j.syncDue(now, alarm) {
		t.Error("a sync is due without a record")
	}
	j.dirty = true
	if !j.syncDue(now, alarm) {
		t.Error("no sync is due with a record")
	}
	if later := now.Add(2 * syncEvery); j.syncDue(later, alarm) || !first.IsZero() {
		t.Error("a second sync is due while the first runs")
	}
	j.work.syncing = false
	if j.syncDue(now.Add(time.Second), alarm) || !first.Equal(now.Add(syncEvery)) {
		t.Errorf("the next sync is due at %v, want %v", first, now.Add(syncEvery))
	}
	if !j.syncDue(now.Add(syncEvery), alarm) {
		t.Error("no sync is due after the pause")
	}
}

func TestJournalCompactionIsDelayedByAFailure(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, j := range map[string]*journal{
		"large":    {size: 101},
		"long":     {lines: compactFrom + 4*7 + 1},
		"torn":     {torn: true},
		"as it is": {size: 100, lines: compactFrom + 4*7},
	} {
		if got, want := j.compactDue(now, 100, 7), name != "as it is"; got != want {
			t.Errorf("%s: got %t, want %t", name, got, want)
		}
		j.torn = true
		j.compactFailed(now)
		if j.compactDue(now, 100, 7) || !j.compactDue(now.Add(lookEvery), 100, 7) {
			t.Errorf("%s: the next attempt is not %v later", name, lookEvery)
		}
	}
}
