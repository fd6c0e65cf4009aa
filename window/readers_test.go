package window

import (
	"fmt"
	"testing"
	"time"
)

func TestReadersForgetTheMostSilentOne(t *testing.T) {
	s := readers{}
	now := time.Unix(1000, 0)
	for i := range mostReaders {
		s.get(now.Add(time.Duration(i)), fmt.Sprint(i), 3)
	}
	s["0"].held, s["1"].asks = 1, 1
	if rd, added := s.get(now, "2", 5); added || rd.epoch != 3 {
		t.Errorf("got a new reader (%t) in epoch %d, want the known one in epoch 3", added, rd.epoch)
	}
	if rd, added := s.get(now, "new", 5); !added || rd.epoch != 5 {
		t.Errorf("got a known reader (%t) in epoch %d, want a new one in epoch 5", !added, rd.epoch)
	}
	if len(s) != mostReaders || s["0"] == nil || s["1"] == nil || s["2"] != nil {
		t.Errorf("%d readers are known, want %d: all but the most silent one that neither holds nor waits", len(s), mostReaders)
	}
	if all := s.sorted(); all[0].name != "0" || all[len(all)-1].name != "new" {
		t.Error("the readers are not sorted by name")
	}
}
