package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Of what two successive scans find, the times of the files decide which checkpoint is newer.
func TestListingDoesNotDecideWhichCheckpointIsNewer(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	type one struct {
		scan      int64
		step      int64
		written   time.Time
		complete  time.Time
		committed bool
	}
	for name, tt := range map[string]struct {
		found []one // in this order
		want  int64 // the newest
	}{
		"the later one is found later":                 {[]one{{1, 1, at(1), at(1), false}, {2, 2, at(2), at(2), false}}, 2},
		"the earlier one is found later":               {[]one{{1, 2, at(2), at(8), false}, {2, 1, at(1), at(9), false}}, 2},
		"both are found by one scan":                   {[]one{{1, 2, at(2), at(8), false}, {1, 1, at(1), at(9), false}}, 2},
		"a rollback":                                   {[]one{{1, 2, at(1), at(8), false}, {2, 1, at(2), at(9), false}}, 1},
		"a rollback whose later one is found first":    {[]one{{1, 1, at(2), at(8), false}, {2, 2, at(1), at(9), false}}, 1},
		"the file system counts seconds":               {[]one{{1, 2, at(1), at(8), false}, {2, 1, at(1), at(9), false}}, 2},
		"two scans apart, with a clock that went back": {[]one{{1, 1, at(2), at(8), false}, {3, 2, at(1), at(9), false}}, 2},
		"times are unknown":                            {[]one{{1, 2, time.Time{}, at(8), false}, {2, 1, time.Time{}, at(9), false}}, 1},
		"committed by the trainer":                     {[]one{{1, 2, at(2), at(8), false}, {2, 1, at(1), at(9), true}}, 1},
		"found after one that the trainer committed":   {[]one{{1, 2, at(2), at(8), true}, {2, 1, at(1), at(9), false}}, 2},
		"the same step again":                          {[]one{{1, 1, at(2), at(8), false}, {2, 1, at(1), at(9), false}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var l listings
			var newest *snapshot
			for _, f := range tt.found {
				snap := &snapshot{Step: f.step, written: f.written, Complete: f.complete, Committed: f.committed}
				l.begun = f.scan
				l.place(snap)
				if newest == nil || newerFirst(snap, newest) < 0 {
					newest = snap
				}
			}
			if newest.Step != tt.want {
				t.Errorf("the newest is step %d, want %d", newest.Step, tt.want)
			}
		})
	}
}

// A stager without other nodes does so, too: what it saves, removes and restores follows this order.
func TestStepThatIsListedLateIsNotNewest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, aside := newHurry(t, Config{When: When{Exit: true}}), t.TempDir()
		write(t, filepath.Join(aside, "step-2"), map[string]string{"model.pt": zipped(t, "2")})
		write(t, filepath.Join(aside, "step-2"), map[string]string{markerName: ""})
		time.Sleep(time.Second)
		h.marked("step-3")
		if err := h.u.scan(false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := os.Rename(filepath.Join(aside, "step-2"), filepath.Join(h.dir, "step-2")); err != nil {
			t.Fatal(err)
		}
		if err := h.u.scan(false); err != nil {
			t.Fatal(err)
		}
		if got := h.u.Status().Complete; got == nil || got.Step != 3 {
			t.Errorf("the newest complete checkpoint is %+v, want step 3", got)
		}
	})
}
