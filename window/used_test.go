package window

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// A trainer's count refers to the order in which one reader receives the shards: five of ten
// samples, of which two are acknowledged and two are held.
func TestSampleCountLocatesPosition(t *testing.T) {
	shards := items(5, 10)
	for i := range shards {
		shards[i].Samples = 10
	}
	for _, tt := range []struct {
		name   string
		seen   int64
		config func(c *Config)
		take   func(b *bench)
		want   Cursor
	}{
		{"in the first that is held", 23, nil, nil, Cursor{Finished: map[int][]Span{0: {{0, 1}}}, Used: []Used{{0, 2, 3}}}},
		{"in the second that is held", 31, nil, nil, Cursor{Finished: map[int][]Span{0: {{0, 1}}}, Used: []Used{{0, 2, 10}, {0, 3, 1}}}},
		{"before those that are held", 20, nil, nil, Cursor{Finished: map[int][]Span{0: {{0, 1}}}}},
		{"in what was acknowledged too early", 4, nil, nil, Cursor{Finished: map[int][]Span{}, Used: []Used{{0, 0, 4}}}},
		{"behind what was given", 41, nil, nil, Cursor{Again: "41 samples are 1 more than were delivered to readers"}},
		{"not told by the shards", 23, func(c *Config) { c.Items = make(List, 5); copy(listOf(*c), items(1, 10)) }, nil, Cursor{Again: "give the input an index"}},
		{"in any order", 23, func(c *Config) { c.AnyOrder = true }, nil, Cursor{Again: "not read by one reader"}},
		{"of several readers", 23, nil, func(b *bench) { b.must(b.lease("another")) }, Cursor{Again: "not read by one reader"}},
		{"of one that mixes", 23, nil, func(b *bench) {
			b.must(b.Lease(b.t.Context(), LeaseRequest{Reader: "r", Mixes: true}))
		}, Cursor{Again: "not read by one reader"}},
		{"of one that refused a shard", 23, nil, func(b *bench) {
			b.ok(b.Nack(b.must(b.lease("r")).ID, "torn"))
			b.idle()
			b.must(b.lease("r"))
		}, Cursor{Again: "once each"}},
		{"before the epoch", 49, nil, func(b *bench) { b.take(1, map[seq]int{}) }, Cursor{Again: "1 fewer than the epochs before 1 contain"}},
		{"in the next epoch", 53, nil, func(b *bench) { b.take(2, map[seq]int{}) }, Cursor{Epoch: 1, Finished: map[int][]Span{}, Used: []Used{{1, 0, 3}}}},
		{"at the end", 100, nil, func(b *bench) { b.take(6, map[seq]int{}) }, Cursor{Epoch: 2, Finished: map[int][]Span{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				cfg := Config{Items: shards, Size: 100, Epochs: 2, Manifest: "m", Part: "0/1"}
				if tt.config != nil {
					tt.config(&cfg)
					for i := range listOf(cfg) {
						listOf(cfg)[i].Name, listOf(cfg)[i].Size = shards[i].Name, 10
					}
				}
				b := newBench(t, cfg)
				b.take(2, map[seq]int{})
				held := []Lease{b.must(b.lease("r")), b.must(b.lease("r"))}
				if tt.want.Epoch > 0 || strings.Contains(tt.want.Again, "epochs before") {
					for _, l := range held {
						b.ok(b.Ack(l.ID))
					}
				}
				if tt.take != nil {
					tt.take(b)
				}
				at := b.Cursor()
				got := b.Reached(at, tt.seen)
				if tt.want.Again != "" {
					if !strings.Contains(got.Again, tt.want.Again) || !reflect.DeepEqual(got.Finished, at.Finished) || got.Used != nil {
						t.Errorf("got %+v, want %+v and why: %q", got, at, tt.want.Again)
					}
					return
				}
				if got.Epoch != tt.want.Epoch || !reflect.DeepEqual(got.Finished, tt.want.Finished) || !reflect.DeepEqual(got.Used, tt.want.Used) || got.Again != "" {
					t.Errorf("got %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// trainer uses samples one by one in the order of the shards. Its loader reads ahead, and
// acknowledges independently.
type trainer struct {
	b     *bench
	held  []Lease
	next  Used // the next sample of the last lease
	count int  // number of samples of that lease
	seen  int64
	used  map[Used]int
}

// use uses up to n samples, and reports whether the data has ended.
func (tr *trainer) use(n, lag int) bool {
	for ; n > 0; n-- {
		for tr.next.Samples == tr.count {
			for len(tr.held) > lag {
				tr.b.ok(tr.b.Ack(tr.held[0].ID))
				tr.held = tr.held[1:]
			}
			tr.b.idle()
			l, err := tr.b.lease("r")
			switch {
			case isEnd(err, tr.b.cfg.Epochs-1):
				return true
			case err != nil && lag > 0:
				lag = 0
			case err == nil:
				tr.held, tr.next, tr.count = append(tr.held, l), Used{l.Epoch, l.Pos, l.Skip}, l.Samples
			}
		}
		tr.used[tr.next]++
		tr.next.Samples++
		tr.seen++
	}
	return false
}

// Jobs are killed again and again. They resume on other machines, from a checkpoint that counts the
// samples, and finally with another number of nodes. The checkpoints and the last jobs together
// contain every sample exactly once.
func TestSamplesAreUsedOnceAcrossKills(t *testing.T) {
	for seed := range uint64(20) {
		virtual(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			saved := map[Used]int{}
			seen := make([]int64, 2)
			var cursors []Cursor
			for round, n := range []int{2, 2, 2, 3} {
				all := nodes(t, n)
				var now []Cursor
				for i, b := range all {
					if round > 0 {
						b.ok(b.Rewind(cursors, func(pos int) int { return pos % 2 }))
						b.crash()
						b.idle()
					}
					tr := &trainer{b: b, used: map[Used]int{}}
					if round == 3 {
						if !tr.use(1<<30, 0) {
							t.Error("the end is not told")
						}
					} else {
						tr.seen = seen[i]
						tr.use(100+random.IntN(200), random.IntN(2))
						if c := b.Reached(b.Cursor(), tr.seen); c.Again != "" {
							t.Errorf("seed %d, round %d: %s", seed, round, c.Again)
						} else {
							now = append(now, c)
						}
						seen[i] = tr.seen
					}
					for sample, n := range tr.used {
						saved[sample] += n
					}
					tr.use(random.IntN(50), 0) // samples after the checkpoint
				}
				cursors = now
			}
			for epoch := range 3 {
				for pos, item := range positions(nodes(t, 1)[0].cfg.Order(epoch)) {
					for sample := range item { // as many as items sets
						if n := saved[Used{epoch, pos, sample}]; n != 1 {
							t.Fatalf("seed %d: sample %d of position %d in epoch %d was used %d times, want once", seed, sample, pos, epoch, n)
						}
					}
				}
			}
		})
	}
}

// After a change of the number of nodes, a count does not identify a sample. Samples that were used
// before the change are skipped all the same, even after a kill of stager.
func TestSampleCountIsRejectedAfterNodesChanged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		tr := &trainer{b: nodes(t, 1)[0], used: map[Used]int{}}
		tr.use(200, 0)
		at := tr.b.Reached(tr.b.Cursor(), tr.seen)
		if len(at.Used) != 1 {
			t.Fatalf("got %+v, want one position that is begun", at)
		}
		for i, b := range nodes(t, 2) {
			b.ok(b.Rewind([]Cursor{at}, func(int) int { return 0 }))
			b.crash()
			b.crash()
			b.idle()
			c := b.Cursor()
			if own := at.Used[0].Pos%2 == i; !c.Recut || own != (len(c.Used) == 1) {
				t.Errorf("node %d: got %+v, want it recut, and what is used of its own part", i, c)
			}
			if why := b.Reached(c, 1).Again; !strings.Contains(why, "the number of nodes has changed") {
				t.Errorf("node %d: got %q", i, why)
			}
		}
		wrong := at
		wrong.Used = []Used{{0, 0, 3}}
		b := nodes(t, 1)[0]
		if err := b.Rewind([]Cursor{wrong}, func(int) int { return 0 }); err == nil || !strings.Contains(fmt.Sprint(err), "3 used samples at position 0") {
			t.Errorf("got %v, want a refusal of what is settled and used", err)
		}
	})
}
