package soak

import (
	"testing"

	"github.com/stager-dev/stager/e2e/trial"
)

func TestLedgerFindsBrokenPromises(t *testing.T) {
	event := func(what string, epoch int, name string) trial.Event {
		return trial.Event{What: what, Epoch: epoch, Name: "/w/ready/e0000-00000001-" + name, SHA256: "sum of " + name}
	}
	once := func(name string) []trial.Event {
		return []trial.Event{event("took", 0, name), event("acking", 0, name), event("acked", 0, name)}
	}
	end := []trial.Event{{What: "end"}}
	wrong := event("took", 0, "b")
	wrong.SHA256 = "another"
	for name, tt := range map[string]struct {
		rounds [][]trial.Event // each is read after the one before
		want   int
	}{
		"all well":                {[][]trial.Event{once("a"), once("b"), end, nil}, 0},
		"an end seen first":       {[][]trial.Event{once("a"), end, once("b")}, 0},
		"killed before it heard":  {[][]trial.Event{once("a"), once("b")[:2], end, nil}, 0},
		"delivered twice":         {[][]trial.Event{once("a"), once("b")[:1], once("b"), end, nil}, 0},
		"a shard is missing":      {[][]trial.Event{once("a"), end, nil}, 1},
		"never acknowledged":      {[][]trial.Event{once("a"), once("b")[:1], end, nil}, 1},
		"acknowledged twice":      {[][]trial.Event{once("a"), once("b"), once("b"), end, nil}, 1},
		"other bytes":             {[][]trial.Event{once("a"), {wrong}, once("b"), end, nil}, 1},
		"delivered after the end": {[][]trial.Event{once("a"), once("b"), end, nil, once("b")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(map[string]string{"a": "sum of a", "b": "sum of b"})
			for _, events := range tt.rounds {
				ended := l.ended
				l.note(events)
				l.judge(ended)
			}
			if got := len(l.broken); got != tt.want {
				t.Errorf("got %q, want %d", l.broken, tt.want)
			}
		})
	}
}
