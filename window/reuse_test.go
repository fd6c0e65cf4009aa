package window

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Files that are retained for the next epoch are not fetched again. Their bytes never exceed the
// limit.
func TestReuseAvoidsFetches(t *testing.T) {
	shuffled := func(epoch int) Order { return permuted(5, epoch, 20) }
	for _, tt := range []struct {
		name     string
		reuse    Reuse
		size     int64
		order    func(int) Order
		min, max int // fetches, of 20 shards in 4 epochs
	}{
		{"nothing stays", ReuseNone, 400, shuffled, 80, 80},
		{"all fits and stays", ReuseFit, 200, shuffled, 20, 20},
		{"all fits and is pinned", ReusePin, 200, shuffled, 20, 20},
		{"all does not fit, and nothing stays", ReuseFit, 199, shuffled, 80, 80},
		// 12 fit: at best these are there when an epoch starts, and 8 have to be fetched.
		{"what is wanted first stays", ReusePin, 120, nil, 20 + 3*8, 20 + 3*9},
		{"what is wanted first stays, shuffled", ReusePin, 120, shuffled, 20 + 3*8, 20 + 3*9},
		{"a small window keeps little", ReusePin, 20, shuffled, 70, 80},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				b := newBench(t, Config{Items: items(20, 10), Size: tt.size, Epochs: 4, Parallel: 1, Reuse: tt.reuse, Order: tt.order})
				seen := map[seq]int{}
				b.take(1000, seen)
				s := b.Status()
				if b.fetcher.calls < tt.min || b.fetcher.calls > tt.max || int(s.Reused) < 80-b.fetcher.calls {
					t.Errorf("%d fetches, %d stayed; want %d to %d fetches", b.fetcher.calls, s.Reused, tt.min, tt.max)
				}
				if !s.Done || s.Used != 0 || s.Peak > tt.size || len(seen) != 80 {
					t.Errorf("%d were delivered, and got %+v, want 80, and nothing left", len(seen), s)
				}
				for a, n := range seen {
					if n != 1 {
						t.Errorf("%v was delivered %d times", a, n)
					}
				}
			})
		})
	}
}

// A shard is retained however it is acknowledged. A stager that is killed between two epochs
// recovers the retained files.
func TestReuseSurvivesFileProtocolAndKills(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(4, 10), Size: 40, Epochs: 2, Reuse: ReuseFit})
		b.idle()
		name := func(pos int) string { return seq{0, pos}.fileName(listOf(b.cfg)[pos].Name) }
		b.ok(os.Remove(b.at("ready", name(0))))
		b.ok(os.Rename(b.at("ready", name(1)), b.at("done", name(1))))
		b.ok(b.Ack(b.must(b.lease("r")).ID))
		b.idle()
		b.want("done")
		b.crash()
		b.idle()
		if got := len(b.ls(".stager/whole")); got != 3 {
			t.Errorf("%d stay for epoch 1, want 3", got)
		}
		b.ok(os.Remove(b.at("ready", name(3)))) // between two scans
		b.crash()
		b.idle()
		b.want("ready", "e0000.END", "e0001-00000000-s00.tar", "e0001-00000001-s01.tar", "e0001-00000002-s02.tar", "e0001-00000003-s03.tar")
		if b.fetcher.calls != 4 {
			t.Errorf("%d fetches, want 4", b.fetcher.calls)
		}
		for pos := range 4 {
			if data, err := os.ReadFile(b.at("ready", seq{1, pos}.fileName(listOf(b.cfg)[pos].Name))); string(data) != strings.Repeat(string(rune('a'+pos)), 10) {
				t.Errorf("position %d holds %q (%v)", pos, data, err)
			}
		}
	})
}

// A reader keeps a shard open that it acknowledged and that was retained for the next epoch. When
// its space is needed, the file is not deleted, and its bytes count.
func TestReuseKeepsOpenFiles(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{
			Items: items(4, 10), Size: 20, Epochs: 2, Reuse: ReusePin, Parallel: 1,
			Order: func(epoch int) Order { return []Indexes{{0, 1, 2, 3}, {3, 2, 1, 0}}[epoch] },
		})
		b.idle()
		l := b.must(b.lease("r"))
		file, err := os.Open(l.Path)
		b.ok(err)
		for range 3 {
			b.ok(b.Ack(l.ID))
			b.idle()
			l, err = b.lease("r")
			if err != nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("got %v: an open file keeps the others out", err)
		}
		b.crash()
		b.idle()
		if s := b.Status(); s.Used > 20 {
			t.Errorf("got %+v, want at most 20 bytes", s)
		}
		data := make([]byte, 10)
		if n, err := file.ReadAt(data, 0); n != 10 || string(data) != "aaaaaaaaaa" {
			t.Errorf("read %q (%v)", data[:n], err)
		}
		info, err := file.Stat()
		b.ok(err)
		if info.Sys().(*syscall.Stat_t).Nlink == 0 {
			t.Error("it was deleted while it was open")
		}
		b.ok(file.Close())
		b.take(100, map[seq]int{})
		b.advance(time.Second)
		if s := b.Status(); !s.Done || s.Used != 0 || s.Peak > 20 {
			t.Errorf("got %+v, want nothing left", s)
		}
	})
}

// A rewind happens while shards are retained for a later epoch: they are removed to make room, and
// count until then.
func TestReuseSurvivesRewind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, back := range []int{0, 3, 6, 9} {
			b := newBench(t, Config{Items: items(6, 10), Size: 40, Epochs: 4, Reuse: ReusePin})
			var at Cursor
			for n := range 15 {
				if n == back {
					at = b.Cursor()
				}
				b.take(1, map[seq]int{})
			}
			b.ok(b.Rewind([]Cursor{at}, func(int) int { return 0 }))
			b.crash()
			again := map[seq]int{}
			b.take(1000, again)
			if s := b.Status(); !s.Done || s.Used != 0 || s.Peak > 40 || len(again) != 24-back {
				t.Errorf("back to %d: %d were delivered, and got %+v, want %d, and nothing left", back, len(again), s, 24-back)
			}
		}
	})
}

// The journal is lost, and with it the end of the first epoch: acknowledgements now belong to the
// second epoch. The order of the third was not computed yet. The window waited for it while the
// file took the room that the first epoch needed.
func TestReuseSkipsShardsAcknowledgedFarAhead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		two := items(2, 10)
		two[1].Size = 20
		b := newBench(t, Config{Items: two, Size: 25, Epochs: 4, Reuse: ReusePin})
		first := b.Cursor()
		b.take(2, map[seq]int{})
		for _, c := range []Cursor{first, b.Cursor()} { // back, which forgets the end of epoch 0, and forward again
			b.ok(b.Rewind([]Cursor{c}, func(int) int { return 0 }))
			b.crash()
		}
		b.idle()
		b.ok(os.Remove(b.at(".stager", "journal")))
		b.ok(os.Remove(b.at("ready", seq{1, 0}.fileName(two[0].Name))))
		b.crash()
		seen := map[seq]int{}
		b.take(100, seen)
		if s := b.Status(); !s.Done || len(seen) != 7 {
			t.Errorf("%d were delivered, and got %+v, want 7 and an end", len(seen), s)
		}
	})
}

// Shards were retained for the next epoch. After a rewind they were dropped for earlier positions.
// One of them was then fetched a second time while it was there: it was deleted from the wrong
// list, because its turn came before that of an earlier position, which still waited for reuse.
func TestReuseFetchesDroppedShardOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{
			Items: items(4, 10), Size: 40, Epochs: 2, Reuse: ReuseFit, OnBad: BadSkip,
			Order: func(epoch int) Order { return []Indexes{{0, 1, 2, 3}, {0, 3, 1, 2}}[epoch] },
		})
		at := b.Cursor()
		b.take(3, map[seq]int{})
		b.ok(b.Rewind([]Cursor{at}, func(int) int { return 0 }))
		b.crash()
		b.fetcher.script[2] = []error{ErrGone}
		b.take(1000, map[seq]int{})
		if b.fetcher.calls != 4+4 {
			t.Errorf("%d fetches, want 4, two of them again, one that failed, and its item for the next epoch", b.fetcher.calls)
		}
		if s := b.Status(); !s.Done || s.Used != 0 || s.Peak > 40 || len(s.Skipped) != 1 {
			t.Errorf("got %+v, want nothing left", s)
		}
	})
}

func TestReuseRequiresAcknowledgement(t *testing.T) {
	for _, cfg := range []Config{{Reuse: "some"}, {Reuse: ReuseFit, Release: ReleaseRolling}, {Reuse: ReusePin, Release: ReleaseNever}} {
		cfg.Dir, cfg.Items, cfg.Size, cfg.Fetcher = t.TempDir(), items(1, 10), 10, &fake{}
		if w, err := New(cfg); err == nil {
			w.Close()
			t.Errorf("reuse %s with release %s is taken", cfg.Reuse, cfg.Release)
		}
	}
}
