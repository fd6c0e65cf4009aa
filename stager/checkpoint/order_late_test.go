package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// Steps are committed in another order than they were complete: a backlog is sent newest first,
// an upload is slow, or the nodes of a former job finish late. Only COMMITs of a single node's
// daemon recorded when the checkpoint was complete, and they had an effect only if the COMMIT
// was more than five minutes late.

// writerKind is the kind of process that commits a step.
type writerKind int

const (
	byDaemon    writerKind = iota
	byNodes                // nodes of one job
	byOtherJob             // nodes of a job of their own
	writerKinds            // how many there are
)

func (k writerKind) String() string {
	return [...]string{"daemon", "nodes", "nodes of another job"}[k]
}

// lateSteps are steps in order of completion, with the writer that commits each.
type lateSteps struct {
	numbers []int64
	by      []writerKind
	order   []int // +i+1: step i is complete; -(i+1): it is committed
	gap     time.Duration
}

func (l *lateSteps) String() string {
	var text []string
	for _, e := range l.order {
		if e > 0 {
			text = append(text, fmt.Sprintf("step %d complete", l.numbers[e-1]))
		} else {
			text = append(text, fmt.Sprintf("committed by %v", l.by[-e-1]))
			text[len(text)-1] = fmt.Sprintf("step %d ", l.numbers[-e-1]) + text[len(text)-1]
		}
	}
	return strings.Join(text, ", ") + ", each " + l.gap.String()
}

// eachLate calls do for all orders of completing and committing n steps, all their numbers, and
// all writers.
func eachLate(n int, gaps []time.Duration, do func(lateSteps)) {
	numbers := make([]int64, n)
	for i := range numbers {
		numbers[i] = int64(100 * (i + 1))
	}
	for _, by := range tuples(n, int(writerKinds)) {
		kinds := make([]writerKind, n)
		for i, k := range by {
			kinds[i] = writerKind(k)
		}
		for _, numbers := range permutations(numbers) {
			for _, order := range completingAndCommitting(n, nil, 0) {
				for _, gap := range gaps {
					do(lateSteps{numbers, kinds, order, gap})
				}
			}
		}
	}
}

// tuples returns all tuples of n numbers below limit.
func tuples(n, limit int) [][]int {
	all := [][]int{nil}
	for range n {
		var longer [][]int
		for _, t := range all {
			for k := range limit {
				longer = append(longer, append(slices.Clone(t), k))
			}
		}
		all = longer
	}
	return all
}

func permutations(of []int64) (all [][]int64) {
	if len(of) == 0 {
		return [][]int64{nil}
	}
	for i := range of {
		for _, rest := range permutations(slices.Delete(slices.Clone(of), i, i+1)) {
			all = append(all, append([]int64{of[i]}, rest...))
		}
	}
	return all
}

// completingAndCommitting returns all orders in which n steps are completed one after the other,
// and each is committed at some later time.
func completingAndCommitting(n int, begun []int, complete int) (all [][]int) {
	if len(begun) == 2*n {
		return [][]int{begun}
	}
	if complete < n {
		all = completingAndCommitting(n, append(slices.Clone(begun), complete+1), complete+1)
	}
	for i := range complete {
		if !slices.Contains(begun, -i-1) {
			all = append(all, completingAndCommitting(n, append(slices.Clone(begun), -i-1), complete)...)
		}
	}
	return all
}

// play completes and commits the steps.
func (l *lateSteps) play(now func() time.Time, pass func(time.Duration), commit func(i int, at time.Time)) {
	at := make([]time.Time, len(l.numbers))
	for _, e := range l.order {
		if pass(l.gap); e > 0 {
			at[e-1] = now()
		} else {
			commit(-e-1, at[-e-1])
		}
	}
}

// tried returns the numbers of steps in the order in which restore tries them.
func tried(t *testing.T, store *backends.Store, steps []*listed) (got []int64) {
	t.Helper()
	for s, err := range newestFirst(t.Context(), store, steps) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s.step)
	}
	return got
}

// wants returns the steps in order of completion, newest first.
func (l *lateSteps) wants() []int64 {
	want := slices.Clone(l.numbers)
	slices.Reverse(want)
	return want
}

var lateGaps = []time.Duration{2 * time.Second, 10 * time.Minute}

// lateCount counts the runs that end with another order.
type lateCount struct{ runs, wrong int }

func (c *lateCount) add(t *testing.T, l *lateSteps, got []int64) {
	t.Helper()
	if c.runs++; slices.Equal(got, l.wants()) {
		return
	}
	if c.wrong++; c.wrong <= 10 {
		t.Errorf("%v: got %v, want %v", l, got, l.wants())
	}
}

// This test runs every order of completing and committing two steps, with and without a rollback,
// for all ways of saving.
func TestOrderOfTwoStepsCommittedLate(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"model.pt": "weights"})
	var count lateCount
	eachLate(2, lateGaps, func(l lateSteps) {
		inBubble(t, func(t *testing.T) {
			store := newStore(mem.New())
			l.play(now, time.Sleep, func(i int, at time.Time) { l.save(t, store, dir, i, at) })
			steps, err := listSteps(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			count.add(t, &l, tried(t, store, steps))
		})
	})
	t.Logf("%d runs, %d wrong", count.runs, count.wrong)
}

// This test does the same for three steps, of which it writes only the COMMITs.
func TestOrderOfThreeStepsCommittedLate(t *testing.T) {
	store := newStore(mem.New())
	var count lateCount
	eachLate(3, lateGaps, func(l lateSteps) {
		var steps []*listed
		clock := time.Unix(1e9, 0)
		l.play(func() time.Time { return clock }, func(d time.Duration) { clock = clock.Add(d) }, func(i int, at time.Time) {
			c := l.commit(t, i, at)
			c.Created = clock
			steps = append(steps, &listed{dir: stepDir(c.Step, 0), step: c.Step, committed: true, modified: clock, commit: &c})
		})
		slices.SortFunc(steps, func(a, b *listed) int { return cmp.Compare(b.step, a.step) })
		count.add(t, &l, tried(t, store, steps))
	})
	t.Logf("%d runs, %d wrong", count.runs, count.wrong)
}

// save commits the i-th step, which was complete at the given time.
func (l *lateSteps) save(t *testing.T, store *backends.Store, dir string, i int, at time.Time) {
	t.Helper()
	var err error
	switch l.by[i] {
	case byNodes, byOtherJob:
		var text []byte
		if text, err = encode(l.commit(t, i, at)); err == nil {
			_, err = store.PutBytes(t.Context(), stepDir(l.numbers[i], 0)+"/"+commitKey, text, backends.CreateOptions{})
		}
	default:
		root, only, oerr := openPath(dir)
		if oerr != nil {
			t.Fatal(oerr)
		}
		from := tree{root: root, only: only}
		defer from.close()
		files, _, ferr := from.files()
		if ferr != nil {
			t.Fatal(ferr)
		}
		s := &shipper{store: store, log: slog.New(slog.DiscardHandler), moved: func(int64) {}}
		_, _, err = s.ship(t.Context(), uploadJob{id: newID(), step: l.numbers[i], tree: from, files: files, completed: at})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// commit returns the COMMIT of the i-th step as its writer makes it, without data.
func (l *lateSteps) commit(t *testing.T, i int, at time.Time) Commit {
	t.Helper()
	p := part{
		Step: l.numbers[i], Completed: at, Data: dataDir + "/" + strings.Repeat("0", 15) + fmt.Sprint(i),
		Files: []File{{Path: "model.pt", Size: 1, Digest: "crc64nvme:0123456789abcdef"}},
	}
	if k := l.by[i]; k != byNodes && k != byOtherJob {
		return (&shipper{}).single("", p)
	}
	payload, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	joined := group.Joined{Job: "job-a", View: strings.Repeat("a", 32), Seq: 1, Save: i + 1, Count: 2}
	if l.by[i] == byOtherJob {
		joined.Job = fmt.Sprint("job-", i)
	}
	m := &member{u: new(Uploader)}
	c, _, err := m.join(group.Action{Save: group.Announcement{Step: p.Step}, Joined: joined, Parts: []group.Part{{Index: 0, Payload: payload}, {Index: 1}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Steps stay in the order of their numbers while the clocks of two writers differ by at most
// skew, however late they are committed.
func TestOrderWithClocksApart(t *testing.T) {
	base := time.Unix(1e9, 0)
	for _, off := range []time.Duration{-skew, -time.Second, 0, time.Second, skew} {
		for _, late := range []time.Duration{0, time.Second, time.Hour} {
			lower := commitOrder{step: 1, complete: base.Add(off), created: base.Add(off + late), modified: base.Add(late)}
			high := commitOrder{step: 2, complete: base.Add(time.Second), created: base.Add(2 * time.Second), modified: base.Add(2 * time.Second)}
			if lower.after(&high) || !high.after(&lower) {
				t.Errorf("the lower step's writer is %v ahead and commits %v late: got that it is the newer one", off, late)
			}
		}
	}
}

// Steps that are pushed one right after the other are in order even if the store counts whole
// seconds. Restore returned step 397 although step 396 was pushed after it had been committed,
// 90 ms later: the store dated both to one second, and the higher number counted as newer.
func TestOrderOfPushesWithinASecond(t *testing.T) {
	for _, took := range [][2]int{{1, 1}, {1, 900}, {90, 90}, {900, 1}, {900, 900}} { // milliseconds of each push
		for _, gap := range []int{1, 10, 500} { // milliseconds between them
			for phase := range 1000 { // when the first one starts in a second
				at := func(ms int) time.Time { return time.Unix(1e9, int64(phase+ms)*1e6) }
				pushed := func(step int64, from, to int) *commitOrder {
					return &commitOrder{step: step, complete: at(from), created: at(to), modified: at(to).Truncate(time.Second)}
				}
				for _, steps := range [][2]int64{{396, 397}, {397, 396}} {
					first, second := pushed(steps[0], 0, took[0]), pushed(steps[1], took[0]+gap, took[0]+gap+took[1])
					if !second.after(first) || first.after(second) {
						t.Fatalf("steps %v, %v ms long, %d ms apart, %d ms into a second: got the first as newest", steps, took, gap, phase)
					}
					if first.step > second.step && !first.mayBeBefore(second.modified) {
						t.Fatalf("steps %v, %v ms long, %d ms apart, %d ms into a second: got that the second COMMIT need not be read", steps, took, gap, phase)
					}
				}
			}
		}
	}
}

// TestPushedStepIsNewest pushes a checkpoint by hand whose files are a year old, with a higher
// and with a lower number. The push is the decision for it, so it is the newest step. For a
// while the times of the files counted, and restore returned the step before.
func TestPushedStepIsNewest(t *testing.T) {
	for _, step := range []int64{2000, 500} {
		inBubble(t, func(t *testing.T) {
			store, dir := newStore(mem.New()), t.TempDir()
			write(t, dir, map[string]string{"model.pt": "weights"})
			push := func(step int64) {
				t.Helper()
				if _, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: store, Path: dir, Step: step}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
			push(1000)
			old := now().AddDate(-1, 0, 0)
			if err := os.Chtimes(filepath.Join(dir, "model.pt"), old, old); err != nil {
				t.Fatal(err)
			}
			push(step)
			steps, err := listSteps(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			if got := tried(t, store, steps); len(got) != 2 || got[0] != step {
				t.Errorf("got the steps %v, want %d first", got, step)
			}
		})
	}
}
