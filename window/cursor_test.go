package window

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
)

// nodes opens the windows of n nodes on one plan, in these directories or new ones.
func nodes(t *testing.T, n int, dirs ...string) (all []*bench) {
	for i := range n {
		dir := ""
		if i < len(dirs) {
			dir = dirs[i]
		}
		all = append(all, newBench(t, Config{
			Dir:   dir,
			Items: items(30, 10), Size: 60, Epochs: 3, Manifest: "m", Part: fmt.Sprintf("%d/%d", i, n),
			Order: func(epoch int) Order { return permuted(17, epoch, 30) },
			Owns:  func(pos int) bool { return pos%n == i },
		}))
		all[i].idle()
	}
	return all
}

// take leases and acknowledges up to n shards.
func (b *bench) take(n int, seen map[seq]int) {
	b.t.Helper()
	for taken := 0; taken < n; {
		b.idle()
		l, err := b.lease("r")
		if isEnd(err, b.cfg.Epochs-1) {
			return
		} else if end := (*EndError)(nil); errors.As(err, &end) {
			continue
		} else if err != nil {
			b.t.Fatal(err)
		}
		seen[seq{l.Epoch, l.Pos}]++
		b.ok(b.Ack(l.ID))
		taken++
	}
	b.idle()
}

// The number of nodes changes, and each node has made different progress, up to another epoch.
// Shards that were acknowledged are never redelivered, and all others are.
func TestCursorContinuesWithAnyNumberOfNodes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		seen := map[seq]int{}
		var cursors []Cursor
		for round, n := range []int{1, 4, 3, 2, 6, 1} {
			all := nodes(t, n)
			before := max(1, len(cursors))
			for i, b := range all {
				if round > 0 {
					if err := b.Rewind(cursors, func(pos int) int { return pos % before }); err != nil {
						t.Fatal(err)
					}
					if _, err := b.lease("r"); !errors.Is(err, ErrRewound) {
						t.Errorf("got %v, want ErrRewound", err)
					}
					b.crash()
					b.idle()
				}
				if b.take(3+i*5, seen); round == 5 {
					b.take(1000, seen)
				}
			}
			cursors = nil
			for _, b := range all {
				held, err := b.lease("r") // redelivered after the rewind
				c := b.Cursor()
				if err == nil && !slices.Equal(c.Leased, []int{held.Pos}) {
					t.Errorf("leased are %v, want %d", c.Leased, held.Pos)
				}
				cursors = append(cursors, c)
			}
		}
		for epoch := range 3 {
			for pos := range 30 {
				if n := seen[seq{epoch, pos}]; n != 1 {
					t.Errorf("position %d of epoch %d was acknowledged %d times, want once", pos, epoch, n)
				}
			}
		}
	})
}

func TestRewindForgetsLaterPositions(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := nodes(t, 1)[0]
		b.take(7, map[seq]int{})
		at := b.Cursor()
		b.take(30, map[seq]int{})
		held := b.must(b.lease("r"))
		b.want("ready", append([]string{"e0000.END"}, b.ls("ready")[1:]...)...)
		b.ok(b.Rewind([]Cursor{at}, func(int) int { return 0 }))
		if err := b.Ack(held.ID); !errors.Is(err, ErrNoLease) {
			t.Errorf("a lease of before: got %v, want ErrNoLease", err)
		}
		b.crash()
		b.idle()
		if again := b.must(b.lease("r")); again.Epoch != 0 || again.Pos != 7 || again.Attempt != 1 {
			t.Errorf("got %+v, want position 7 of epoch 0 as if for the first time", again)
		}
		if slices.Contains(b.ls("ready"), "e0000.END") {
			t.Error("the end of the epoch is still marked")
		}
		if s := b.Status(); s.Finished != 7 || s.Used > 60 {
			t.Errorf("got %+v, want 7 settled", s)
		}
	})
}

// A cursor that was stored before a restart and does not fit the plan was dropped without a word.
func TestStoredCursorThatDoesNotFitIsReported(t *testing.T) {
	for why, change := range map[string]func(b *bench){
		"it belongs to manifest m, and the input has another": func(b *bench) { b.cfg.Manifest = "another" },
		"it belongs to part 0/1, and this node has 0/2":       func(b *bench) { b.cfg.Part = "0/2" },
		"it is not a cursor: unexpected end of JSON input":    func(b *bench) { b.ok(os.WriteFile(b.at(cursorName), nil, 0o644)) },
		"": func(*bench) {}, // it fits
	} {
		virtual(t, func(t *testing.T) {
			b := nodes(t, 1)[0]
			b.take(7, map[seq]int{})
			b.ok(b.Rewind([]Cursor{b.Cursor()}, func(int) int { return 0 }))
			var log bytes.Buffer
			b.cfg.Log = slog.New(slog.NewJSONHandler(&log, nil))
			change(b)
			b.crash()
			b.crash() // it is reported once
			times := 0
			for line := range strings.Lines(log.String()) {
				var said struct{ Level, Msg, File, Why string }
				b.ok(json.Unmarshal([]byte(line), &said))
				if strings.HasPrefix(said.Msg, "dropping the stored cursor") {
					times++
					if said.Level != "WARN" || said.Why != why || said.File != cursorName {
						t.Errorf("got %+v, want why %q", said, why)
					}
				}
			}
			if want := min(len(why), 1); times != want {
				t.Errorf("%q is reported %d times, want %d", why, times, want)
			}
		})
	}
}

func TestCursorOfAnotherManifestIsRejected(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := nodes(t, 1)[0]
		b.take(5, map[seq]int{})
		good := b.Cursor()
		for _, tt := range []struct {
			change func(c *Cursor)
			words  string
		}{
			{func(c *Cursor) { c.Manifest = "0123456789abcdef" }, "another manifest: it names 0123456789ab, and input train has m"},
			{func(c *Cursor) { c.Epoch = -1 }, "epoch -1"},
			{func(c *Cursor) { c.Finished = map[int][]Span{0: {{3, 1}}} }, "not in order"},
			{func(c *Cursor) { c.Epoch = 2 }, "has positions of epoch 0"},
			{func(c *Cursor) { c.Finished = map[int][]Span{99: {{3, 4}}} }, "epochs apart"},
		} {
			c := good
			tt.change(&c)
			var refused *CursorError
			if err := b.Rewind([]Cursor{c}, func(int) int { return 0 }); !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("got %v, want a CursorError with %q", err, tt.words)
			}
		}
		if l := b.must(b.lease("r")); l.Pos != 5 {
			t.Errorf("got %+v, want position 5, as before", l)
		}
	})
}

// linesOf returns the part of a report or plan that is the same in every run: the lines without
// readers and times.
func linesOf(t *testing.T, report []Delivery) string {
	t.Helper()
	slices.SortFunc(report, func(a, b Delivery) int { return a.Pos - b.Pos })
	var lines strings.Builder
	for _, d := range report {
		line, err := json.Marshal(d.Position)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	return lines.String()
}

// planned returns the report that the plan requires.
func planned(b *bench, epoch int) (report []Delivery) {
	for _, p := range b.positions(epoch) {
		report = append(report, Delivery{Position: p})
	}
	return report
}

func (b *bench) report(epoch int) []Delivery {
	b.t.Helper()
	report, err := gather(b.Report(epoch))
	if err != nil {
		b.t.Fatal(err)
	}
	return report
}

func (b *bench) sumOf(epoch int, report []Delivery) *ReportSum {
	b.t.Helper()
	sum, err := sumOf(epoch, func(yield func(Delivery, error) bool) {
		for _, d := range report {
			if !yield(d, nil) {
				return
			}
		}
	})
	b.ok(err)
	return sum
}

// The reports of all nodes together equal the plan, byte for byte, for any number of nodes, even if
// readers and nodes die.
func TestReportsMatchPlan(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 4} {
			var merged []Delivery
			all := nodes(t, n)
			for _, b := range all {
				b.take(4, map[seq]int{})
				l := b.must(b.lease("unlucky"))
				b.ok(b.Return(l.ID))
				b.crash()
				b.take(1000, map[seq]int{})
				report := b.report(1)
				for _, d := range report {
					if d.Reader != "r" || d.Attempt != 1 || d.Part != b.cfg.Part || d.Digest != "fake:"+d.Name {
						t.Errorf("got %+v", d)
					}
				}
				merged = append(merged, report...)
				if first := b.report(0); !slices.ContainsFunc(first, func(d Delivery) bool { return d.Attempt == 2 }) {
					t.Errorf("the report does not tell of a second attempt: %+v", first)
				}
				if got, want := b.Status().Report, b.sumOf(2, b.report(2)); *got != *want || got.Shards != len(b.report(2)) {
					t.Errorf("the status has %+v, want %+v", got, want)
				}
			}
			if got, want := linesOf(t, merged), linesOf(t, planned(all[0], 1)); got != want {
				t.Errorf("%d nodes: got %s, want %s", n, got, want)
			}
			if got, want := all[0].sumOf(1, merged).Digest, all[0].sumOf(1, planned(all[0], 1)).Digest; got != want {
				t.Errorf("%d nodes: got the digest %s, want %s", n, got, want)
			}
			if _, err := gather(all[0].Report(7)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v, want fs.ErrNotExist", err)
			}
		}
	})
}

// In mid-epoch, two nodes become three and then one. They reuse the earlier directories if there
// are any. The reports before and after together equal the plan.
func TestReportsMatchPlanAfterNodesChanged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var dirs []string
		var merged []Delivery
		var cursors []Cursor
		for _, n := range []int{2, 3, 1} {
			all := nodes(t, n, dirs...)
			for _, b := range all {
				if before := len(cursors); before > 0 {
					b.ok(b.Rewind(cursors, func(pos int) int { return pos % before }))
					b.crash()
				}
				if b.take(4, map[seq]int{}); n == 1 {
					b.take(1000, map[seq]int{})
				}
			}
			dirs, cursors = nil, nil
			for _, b := range all {
				cursors = append(cursors, b.Cursor())
				merged = append(merged, b.report(0)...)
				// Deliveries after the cursor do not count.
				if b.take(1, map[seq]int{}); n > 1 {
					dirs = append(dirs, b.dir)
				}
				b.ok(b.Close())
			}
		}
		if got, want := linesOf(t, merged), linesOf(t, planned(nodes(t, 1)[0], 0)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
