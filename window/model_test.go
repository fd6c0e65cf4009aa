package window

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/stager-dev/stager/window/disk"
)

// model is the expected state of a window, whatever readers do and whenever it is killed.
type model struct {
	*bench
	whole   Config // the whole plan; cfg is its beginning until it is listed
	rt      *rapid.T
	held    map[string]Lease // by call
	found   map[string]bool  // those of held that were recovered after a crash
	acked   map[seq]bool
	parts   map[shareKey]bool // acknowledged by one of several groups
	given   map[seq]int
	lost    bool // the journal was lost: acknowledged shards may be redelivered
	ends    map[string]int
	skipped map[seq]bool
	opened  []*os.File
	saved   []Cursor

	finished int // by the file protocol
}

const modelEpochs = 8

func newModel(t *testing.T, rt *rapid.T) *model {
	var list List
	for i := range rapid.IntRange(1, 8).Draw(rt, "items") {
		item := Item{Name: fmt.Sprintf("s%02d", i), Size: int64(rapid.IntRange(0, 50).Draw(rt, "size"))}
		if item.Tree = rapid.Bool().Draw(rt, "tree"); item.Tree {
			item.Size = disk.Block * int64(rapid.IntRange(1, 3).Draw(rt, "files"))
			item.UpTo = rapid.Bool().Draw(rt, "up to")
		}
		list = append(list, item)
	}
	var largest int64
	for _, item := range list {
		largest = max(largest, item.Size)
	}
	b := newBench(t, Config{
		Items: list, Size: largest + int64(rapid.IntRange(0, 2).Draw(rt, "blocks"))*disk.Block + int64(rapid.IntRange(0, 100).Draw(rt, "room")), Epochs: modelEpochs,
		Parallel: rapid.IntRange(1, 4).Draw(rt, "parallel"), OnBad: BadSkip,
		AnyOrder: rapid.Bool().Draw(rt, "any order"), Unconfirmed: rapid.Bool().Draw(rt, "unconfirmed"),
		Groups: rapid.SampledFrom([]int{1, 1, 2}).Draw(rt, "groups"),
		Reuse:  rapid.SampledFrom([]Reuse{ReuseNone, ReuseFit, ReusePin}).Draw(rt, "reuse"),
		Order: func(epoch int) Order {
			return Permuted(len(list), func() []int32 {
				order := make([]int32, len(list))
				for i := range order {
					order[i] = int32((i*7 + epoch) % len(list))
					if len(list)%7 == 0 {
						order[i] = int32(i)
					}
				}
				return order
			})
		},
	})
	if err := os.WriteFile(b.at("ready", "README"), []byte("not ours"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.async = true
	m := &model{bench: b, whole: b.cfg, rt: rt, held: map[string]Lease{}, found: map[string]bool{}, acked: map[seq]bool{}, parts: map[shareKey]bool{}, given: map[seq]int{}, ends: map[string]int{}, skipped: map[seq]bool{}}
	if rapid.Bool().Draw(rt, "is still being listed") {
		m.check(b.Close())
		m.check(os.RemoveAll(b.at(disk.Private)))
		m.beginModel()
		m.open()
	}
	return m
}

// one returns a random element, if there is any.
func one[T any](m *model, from []T) (v T, ok bool) {
	if len(from) == 0 {
		return v, false
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(m.rt, "which")], true
}

func (m *model) lease(reader string) bool {
	for id, l := range m.held {
		if m.found[id] && l.Reader == reader {
			delete(m.held, id) // a reader that requests again does not know of them
		}
	}
	l, err := m.bench.lease(reader)
	var end *EndError
	var wait *WaitError
	switch {
	case errors.As(err, &end):
		for _, a := range m.positions(end.Epoch) {
			if !m.acked[a] && !m.skips(a) {
				m.rt.Fatalf("epoch %d ended, and %v is not acknowledged", end.Epoch, a)
			}
		}
		if reported, known := m.ends[reader]; known && end.Epoch != reported+1 && end.Epoch != modelEpochs-1 {
			m.rt.Fatalf("%s was told the end of epoch %d after that of %d", reader, end.Epoch, reported)
		}
		if m.Beginning() {
			m.rt.Fatalf("%s was told the end of epoch %d, and only the beginning of the plan is known", reader, end.Epoch)
		}
		if end.Epoch == modelEpochs-1 && m.cfg.Unconfirmed {
			m.rt.Fatalf("%s reached the end before the plan was confirmed", reader)
		}
		m.ends[reader] = end.Epoch
		return end.Epoch == modelEpochs-1
	case errors.As(err, &wait):
		return false
	case err != nil:
		m.rt.Fatal(err)
	}
	a, group := seq{l.Epoch, l.Pos}, m.groupOf(reader)
	if m.ackedBy(a, group) && !m.lost {
		m.rt.Fatalf("%v was redelivered after its acknowledgement", a)
	}
	for _, other := range m.held {
		if other.Epoch == l.Epoch && other.Pos == l.Pos && m.groupOf(other.Reader) == group {
			m.rt.Fatalf("%v was given to two", a)
		}
	}
	// W6: positions are delivered in order.
	for _, first := range m.positions(a.epoch)[:a.pos] {
		if !m.cfg.AnyOrder && !m.ackedBy(first, group) && !m.isHeld(first, group) && !m.skips(first) {
			m.rt.Fatalf("%v was given before %v", a, first)
		}
	}
	if m.given[a]++; m.cfg.Groups == 1 && !m.lost && (l.Attempt > 1) != (m.given[a] > 1) {
		m.rt.Fatalf("delivery %d of %v says attempt %d", m.given[a], a, l.Attempt)
	}
	m.held[l.ID] = l
	return false
}

func (m *model) positions(epoch int) (all []seq) {
	for pos := range positions(m.whole.Order(epoch)) {
		all = append(all, seq{epoch, pos})
	}
	return all
}

// isHeld reports whether a reader of the group holds the position, by lease or by claim.
func (m *model) isHeld(a seq, group int) bool {
	for _, l := range m.held {
		if l.Epoch == a.epoch && l.Pos == a.pos && m.groupOf(l.Reader) == group {
			return true
		}
	}
	for _, l := range m.leases.byID {
		if l.found && l.e.seq == a && l.group == group {
			return true // the journal was truncated: its reader may come back
		}
	}
	return slices.ContainsFunc(m.files("claimed/v"), func(path string) bool {
		at, _, _ := parseName(filepath.Base(path))
		return at == a
	})
}

// skips reports whether a position was skipped. A loss of the journal does not undo that.
func (m *model) skips(a seq) bool {
	for _, s := range m.Status().Skipped {
		m.skipped[seq{s.Epoch, s.Pos}] = true
	}
	return m.skipped[a]
}

// files returns the plan's files that readers can see in a directory.
func (m *model) files(dir string) (paths []string) {
	entries, err := os.ReadDir(m.at(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.rt.Fatal(err)
	}
	for _, e := range entries {
		if _, _, ok := parseName(e.Name()); ok {
			paths = append(paths, m.at(dir, e.Name()))
		}
	}
	return paths
}

// verb records the meaning of a file operation that was done.
func (m *model) verb(path string, acknowledges bool) {
	a, _, _ := parseName(filepath.Base(path))
	if acknowledges {
		m.acked[a] = true
	}
	for id, l := range m.held {
		if l.Epoch == a.epoch && l.Pos == a.pos {
			delete(m.held, id)
		}
	}
}

func (m *model) check(err error) {
	if err != nil {
		m.rt.Fatal(err)
	}
}

func (m *model) ops() map[string]func(*rapid.T) {
	readers := []string{"a", "b", "c"}
	heldIDs := func() (ids []string) {
		for id := range m.held {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids
	}
	return map[string]func(*rapid.T){
		"step":   func(*rapid.T) { m.step() },
		"settle": func(*rapid.T) { m.idle() },
		"arrive": func(*rapid.T) {
			if len(m.pending) > 0 {
				m.arrive(rapid.IntRange(0, len(m.pending)-1).Draw(m.rt, "which"))
			}
		},
		"fail": func(rt *rapid.T) {
			item := rapid.IntRange(0, m.whole.Items.Len()-1).Draw(rt, "item")
			errs := []error{errors.New("down"), ErrCorrupt, ErrGone, unix.ENOSPC}
			m.fetcher.script[item] = append(m.fetcher.script[item], errs[rapid.IntRange(0, len(errs)-1).Draw(rt, "error")])
		},
		"sleep": func(*rapid.T) { time.Sleep(time.Second) },
		"lease": func(*rapid.T) {
			reader, _ := one(m, readers)
			m.lease(reader)
		},
		"ack": func(*rapid.T) {
			if id, ok := one(m, heldIDs()); ok {
				m.check(m.Ack(id))
				m.ack(m.held[id])
				delete(m.held, id)
			}
		},
		"nack": func(*rapid.T) {
			if id, ok := one(m, heldIDs()); ok {
				m.check(m.Nack(id, "test"))
				delete(m.held, id)
			}
		},
		"unlink": func(*rapid.T) {
			if path, ok := one(m, slices.Concat(m.files("ready"), m.files("claimed/v"))); ok {
				m.check(os.RemoveAll(path))
				m.verb(path, true)
				m.idle()
			}
		},
		"claim": func(*rapid.T) {
			if path, ok := one(m, m.files("ready")); ok {
				m.check(os.MkdirAll(m.at("claimed", "v"), 0o777))
				err := os.Rename(path, m.at("claimed", "v", filepath.Base(path)))
				if errors.Is(err, fs.ErrExist) {
					return // as above
				}
				m.check(err)
				m.verb(path, false)
				m.idle()
				a, _, _ := parseName(filepath.Base(path))
				m.given[a]++
			}
		},
		"finish": func(*rapid.T) {
			if path, ok := one(m, slices.Concat(m.files("ready"), m.files("claimed/v"))); ok {
				m.finished++ // a directory cannot replace another; after a loss of the journal there are two
				m.check(os.Rename(path, m.at("done", fmt.Sprint(filepath.Base(path), ".", m.finished))))
				m.verb(path, true)
				m.idle()
			}
		},
		"open": func(*rapid.T) {
			if path, ok := one(m, m.files("ready")); ok {
				if info, err := os.Stat(path); err == nil && info.IsDir() {
					path = filepath.Join(path, "0")
				}
				file, err := os.Open(path)
				m.check(err)
				m.opened = append(m.opened, file)
			}
		},
		"close": func(*rapid.T) {
			if len(m.opened) > 0 {
				m.check(m.opened[0].Close())
				m.opened = m.opened[1:]
			}
		},
		"save": func(*rapid.T) {
			c := m.Cursor()
			for epoch := range modelEpochs {
				for _, a := range m.positions(epoch) {
					if got, want := c.has(a), m.acked[a]; got != want && !m.lost && !m.skips(a) {
						m.rt.Fatalf("the cursor says %t of %v, want %t: %+v", got, a, want, c)
					}
				}
			}
			m.saved = append(m.saved, c)
		},
		"rewind": func(*rapid.T) {
			if c, ok := one(m, m.saved); ok && !m.Beginning() {
				m.check(m.Rewind([]Cursor{c}, func(int) int { return 0 }))
				m.crash()
				for _, path := range m.files("claimed/v") {
					m.check(os.RemoveAll(path)) // the claim's position has changed
				}
				clear(m.held)
				clear(m.given)
				clear(m.ends)
				clear(m.acked)
				clear(m.parts)
				clear(m.skipped)
				m.lost = false
				for epoch := range modelEpochs {
					for _, a := range m.positions(epoch) {
						if c.has(a) {
							m.acked[a] = true
						}
					}
				}
			}
		},
		"confirm": func(*rapid.T) { m.confirm() },
		"reopen": func(*rapid.T) {
			m.Reopen()
			m.crashed()
		},
		"crash": func(*rapid.T) { m.crashed() },
		"crash and lose the journal": func(rt *rapid.T) {
			journal := m.at(".stager", "journal")
			data, err := os.ReadFile(journal)
			m.check(err)
			how := rapid.SampledFrom([]string{"removed", "cut", "garbage"}).Draw(rt, "how")
			switch how {
			case "removed":
				m.check(os.Remove(journal))
			case "cut":
				m.check(os.WriteFile(journal, data[:rapid.IntRange(0, len(data)).Draw(rt, "at")], 0o644))
			case "garbage":
				m.check(os.WriteFile(journal, bytes.ReplaceAll(data, []byte("1"), []byte("\x00")), 0o644))
			}
			m.lost, m.held, m.ends = true, map[string]Lease{}, map[string]int{}
			m.crash()
		},
		"": func(*rapid.T) { m.invariants() },
	}
}

// invariants checks the invariants after each step.
func (m *model) invariants() {
	if data, err := os.ReadFile(m.at("ready", "README")); string(data) != "not ours" {
		m.rt.Fatalf("a file that is not ours holds %q (%v)", data, err)
	}
	// W1: visible files are complete.
	for _, path := range slices.Concat(m.files("ready"), m.files("claimed/v")) {
		a, name, _ := parseName(filepath.Base(path))
		item := m.whole.Order(a.epoch).At(a.pos)
		if listOf(m.whole)[item].Tree {
			m.wholeTree(path, item)
			continue
		}
		want := bytes.Repeat([]byte{byte('a' + item)}, int(listOf(m.whole)[item].Size))
		if got, err := os.ReadFile(path); listOf(m.whole)[item].Name != name || !bytes.Equal(got, want) {
			m.rt.Fatalf("%s holds %q (%v), want %q", path, got, err, want)
		}
	}
	// W4: the bytes on disk, open or not, never exceed the limit.
	taken := map[uint64]int64{}
	for _, dir := range []string{"incoming", "whole", "held", "pending", "leaving"} {
		err := filepath.WalkDir(m.at(".stager", dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			st := info.Sys().(*syscall.Stat_t)
			taken[st.Ino] = st.Size
			if strings.Count(path[len(m.dir):], "/") > 3 {
				taken[st.Ino] = disk.Room(st.Size)
			} else if strings.HasSuffix(path, ".of") {
				taken[st.Ino] = 0
			}
			return err
		})
		if err != nil {
			m.rt.Fatal(err)
		}
	}
	for _, file := range m.opened {
		var st unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &st); err != nil {
			m.rt.Fatal(err)
		}
		if m.stage.seesOpen && st.Nlink == 0 {
			m.rt.Fatalf("%s was deleted while it was open", file.Name())
		}
		taken[st.Ino] = max(taken[st.Ino], st.Size)
	}
	var sum int64
	for _, size := range taken {
		sum += size
	}
	s := m.Status()
	m.skips(seq{})
	if sum > m.cfg.Size || s.Used > m.cfg.Size || sum > s.Used {
		m.rt.Fatalf("%d bytes on disk, %d counted, of %d", sum, s.Used, m.cfg.Size)
	}
}

// finish drains the window: there is no deadlock, and nothing is lost.
func (m *model) finish() {
	m.continued()
	m.confirm()
	for _, file := range m.opened {
		file.Close()
	}
	m.opened = nil
	for _, path := range m.files("claimed/v") {
		err := os.Rename(path, m.at("ready", filepath.Base(path)))
		if errors.Is(err, fs.ErrExist) { // a directory that was delivered twice after a loss of the journal
			err = os.RemoveAll(path)
			m.verb(path, true)
			m.idle()
		}
		m.check(err)
	}
	for id := range m.held {
		m.check(m.Return(id))
	}
	clear(m.held)
	for range 1000 {
		m.advance(time.Second)
		ended := true
		for _, last := range []string{"the last a", "the last b"} { // one per group
			ended = m.lease(last) && ended
		}
		if ended {
			break
		}
		for id, l := range m.held {
			m.check(m.Ack(id))
			m.ack(l)
		}
		clear(m.held)
		m.invariants()
	}
	m.advance(time.Second)
	for epoch := range modelEpochs {
		for _, a := range m.positions(epoch) {
			if !m.acked[a] && !m.skips(a) {
				m.rt.Fatalf("%v was never acknowledged: %+v", a, m.Status())
			}
		}
	}
	if s := m.Status(); !s.Done || s.Used != 0 {
		m.rt.Fatalf("not empty at the end: %+v", s)
	}
}

// TestWindowModel takes 10,000 random steps; -rapid.checks=5000 takes a million. A
// failure prints the steps and the seed to reproduce them.
func TestWindowModel(t *testing.T) {
	for name, value := range map[string]string{"rapid.checks": "50", "rapid.steps": "200"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // many directories are faster there
	}
	virtual(t, func(t *testing.T) {
		// Without the test's deadline, which is in real time.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			m := newModel(t, rt)
			ops := m.ops()
			maps.Copy(ops, m.beginningOps(ops))
			rt.Repeat(ops)
			m.finish()
			m.check(m.Close())
		})
	})
}
