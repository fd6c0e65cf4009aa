package window

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// Each instant of a kill leaves the directory in one of these states. Without the journal, it is
// unknown which file was verified for which position: files that no reader holds are fetched again.
func TestRecoveryAfterKillAtAnyStep(t *testing.T) {
	type states map[State]int
	for _, tt := range []struct {
		name    string
		make    func(b *bench) // starts in a directory in which first and second are ready
		want    states
		deliver []int // positions, in order, if the rest is leased one by one
		attempt int   // of the first of these
	}{
		{"at rest", func(*bench) {}, states{Ready: 2}, []int{0, 1, 2}, 1},
		{"linked to held, not yet shown", func(b *bench) {
			b.rename("ready/"+first, ".stager/whole/"+first)
		}, states{Ready: 2}, []int{0, 1, 2}, 1},
		{"whole, not yet linked", func(b *bench) {
			b.rename("ready/"+first, ".stager/whole/"+first)
			b.ok(os.Remove(b.at(".stager/held", first)))
		}, states{Ready: 2}, []int{0, 1, 2}, 1},
		{"acknowledged in the journal, nothing removed", func(b *bench) {
			b.ok(b.Ack(b.must(b.lease("r")).ID))
		}, states{Ready: 1, Acked: 1}, []int{1, 2}, 1},
		{"acknowledged, taken from sight", func(b *bench) {
			b.ok(b.Ack(b.must(b.lease("r")).ID))
			b.ok(os.Remove(b.at("ready", first)))
		}, states{Ready: 1, Acked: 1}, []int{1, 2}, 1},
		{"unlinked by a reader, and the journal lost", func(b *bench) {
			b.ok(os.Remove(b.at("ready", first)))
			b.ok(os.Remove(b.at(".stager/journal")))
		}, states{Acked: 1}, []int{1, 2}, 1},
		{"done, and the journal lost", func(b *bench) {
			b.rename("ready/"+first, "done/anything")
			b.ok(os.Remove(b.at(".stager/journal")))
		}, states{Acked: 1}, []int{1, 2}, 1},
		{"claimed, and the journal lost", func(b *bench) {
			b.rename("ready/"+first, "claimed/r/anything")
			b.ok(os.Remove(b.at(".stager/journal")))
		}, states{Leased: 1}, []int{1, 2}, 1},
		{"leased", func(b *bench) { b.must(b.lease("r")) }, states{Ready: 1, Leased: 1}, []int{1, 2}, 1},
		{"leased, and the journal lost", func(b *bench) {
			b.must(b.lease("r"))
			b.ok(os.Remove(b.at(".stager/journal")))
		}, states{}, []int{0, 1, 2}, 1},
		{"leased and returned", func(b *bench) {
			b.ok(b.Return(b.must(b.lease("r")).ID))
		}, states{Ready: 2}, []int{0, 1, 2}, 2},
		{"leased and returned, with the last line torn", func(b *bench) {
			b.ok(b.Return(b.must(b.lease("r")).ID))
			data, err := os.ReadFile(b.at(".stager/journal"))
			b.ok(err)
			b.ok(os.WriteFile(b.at(".stager/journal"), data[:len(data)-3], 0o644))
		}, states{Ready: 2}, []int{0, 1, 2}, 1},
		{"dropped, and still in sight", func(b *bench) {
			st, err := b.stage.held.Stat(second)
			b.ok(err)
			b.rename(".stager/held/"+second, ".stager/pending/"+pendingName(second, st.Ino))
		}, states{Ready: 2}, []int{0, 1, 2}, 1},
		{"dropped and out of sight", func(b *bench) {
			st, err := b.stage.held.Stat(second)
			b.ok(err)
			b.rename(".stager/held/"+second, ".stager/pending/"+pendingName(second, st.Ino))
			b.ok(os.Remove(b.at("ready", second)))
		}, states{Ready: 1, Zombie: 1}, []int{0, 1, 2}, 1},
		{"another plan", func(b *bench) { b.cfg.Manifest = "plan-2" }, states{}, []int{0, 1, 2}, 1},
		{"another plan, and a file of the first claimed", func(b *bench) {
			b.rename("ready/"+first, "claimed/r/"+first)
			b.cfg.Manifest = "plan-2"
		}, states{Zombie: 1}, []int{0, 1, 2}, 1},
		{"another boot of the machine", func(b *bench) {
			b.rename("ready/"+first, "claimed/r/"+first)
			b.ok(b.Ack(b.must(b.lease("r")).ID)) // the second: it stays acknowledged
			stamp, err := os.ReadFile(b.at(".stager/plan"))
			b.ok(err)
			plan, _, _ := strings.Cut(string(stamp), "\n")
			b.ok(os.WriteFile(b.at(".stager/plan"), []byte(plan+"\nan earlier one\n"), 0o644))
		}, states{}, []int{0, 2}, 1},
		{"a shard of another size", func(b *bench) {
			b.ok(os.Chmod(b.at("ready", first), 0o644))
			b.ok(os.Truncate(b.at("ready", first), 5))
		}, states{Ready: 1, Zombie: 1}, []int{0, 1, 2}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
				b.idle()
				tt.make(b)
				b.crash()
				s := b.Status()
				for _, state := range []State{Ready, Leased, Acked, Zombie} {
					if s.Items[state] != tt.want[state] {
						t.Errorf("%d are %s, want %d", s.Items[state], state, tt.want[state])
					}
				}
				var got []int
				for range tt.deliver {
					b.idle()
					l, err := b.lease("s")
					if err != nil {
						t.Fatalf("after %v got %v, want %v", got, err, tt.deliver)
					}
					if len(got) == 0 && l.Attempt != tt.attempt {
						t.Errorf("got attempt %d, want %d", l.Attempt, tt.attempt)
					}
					got = append(got, l.Pos)
					if l.Pos != tt.deliver[len(got)-1] {
						t.Fatalf("got positions %v, want %v", got, tt.deliver)
					}
					b.ok(b.Ack(l.ID))
				}
				b.idle()
				if s := b.Status(); s.Peak > 20 {
					t.Errorf("took %d bytes of 20", s.Peak)
				}
			})
		})
	}
}

func TestOldPlanFileIsRemovedWhenReaderReleasesIt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
		b.idle()
		b.rename("ready/"+first, "claimed/r/"+first)
		b.ok(os.WriteFile(b.at("ready", "e0007.END"), nil, 0o644)) // a foreign file
		b.cfg.Manifest = "plan-2"
		b.crash()
		b.idle()
		if s := b.Status(); s.Bytes[Zombie] != 10 || s.Items[Ready] != 1 {
			t.Errorf("got %+v, want the claimed one counted", s)
		}
		b.rename("claimed/r/"+first, "done/"+first)
		b.idle()
		b.advance(lookEvery)
		if s := b.Status(); s.Bytes[Zombie] != 0 || s.Items[Ready] != 2 {
			t.Errorf("got %+v, want its room used", s)
		}
		b.want("done")
		b.want("ready", first, second, "e0007.END")
	})
}

func TestResumedFetchContinues(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: List{{Name: "big", Size: 20 << 20}, {Name: "orphan", Size: 20 << 20}}, Size: 20 << 20, Epochs: 1})
		in, err := b.stage.Incoming(seq{0, 0}.fileName("big"), 20<<20, "")
		b.ok(err)
		_, err = in.WriteAt(make([]byte, 16<<20), 0)
		b.ok(err)
		other, err := b.stage.Incoming(seq{0, 1}.fileName("orphan"), 20<<20, "")
		b.ok(err)
		_, err = other.WriteAt(make([]byte, 16<<20), 0)
		b.ok(err)
		b.crash()
		if got := len(b.ls(".stager/incoming")); got != 2 { // one file and its progress records
			t.Errorf("%d are left in incoming, want 2", got)
		}
		b.idle()
		data, err := os.ReadFile(b.at("ready", "e0000-00000000-big"))
		b.ok(err)
		if data[16<<20-1] != 0 || data[16<<20] != 'a' {
			t.Error("fetched again what had arrived, or lost it")
		}
	})
}

func FuzzJournal(f *testing.F) {
	var text []byte
	for _, fact := range [][]any{
		{"plan", "p"},
		{"low", seq{1, 2}},
		{"ack", seq{1, 3}, "id-1"},
		{"skip", seq{1, 4}, "name \"quoted\"", "reason\n"},
		{"try", seq{1, 5}, 2, 1, 7},
		{"recut"},
		{"lease", "id-2", "reader", seq{1, 5}},
		{"gone", "id-2", seq{1, 5}},
		{"acked", "id-0"},
		{"reader", "r", 1},
		{"sum", seq{1, 5}, "crc64nvme:abc", uint64(1) << 63, int64(-7)},
	} {
		from := len(text)
		text = sealLine(appendFact(text, fact[0].(string), fact[1:]...), from)
	}
	f.Add(text)
	f.Add(text[:len(text)-5])
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readJournal(strings.NewReader(string(data)), isPlan("p"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		path := filepath.Join(dir, journalName)
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if err := root.Mkdir(disk.Private, 0o755); err != nil {
			t.Fatal(err)
		}
		j := &journal{}
		if err := j.rewrite(root, "p", m); err != nil {
			t.Fatal(err)
		}
		if err := j.add("ack", seq{7, 8}, "new"); err != nil {
			t.Fatal(err)
		}
		defer j.file.Close()
		again, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := readJournal(strings.NewReader(string(again)), isPlan("p"))
		if err != nil {
			t.Fatal(err)
		}
		for epoch, settled := range m.settled {
			if epoch != 7 && !slices.Equal(n.settled[epoch], settled) {
				t.Errorf("got the finished positions %v of epoch %d, want %v", n.settled[epoch], epoch, settled)
			}
		}
		if !n.settled[7].has(8) || n.low != m.low ||
			len(n.leases) < len(m.leases)-1 || len(n.readers) != len(m.readers) || len(n.sums) != len(m.sums) {
			t.Errorf("read %+v, wrote it, and read %+v", m, n)
		}
	})
}

func TestJournalTornLineLosesNoOther(t *testing.T) {
	whole := string(sealLine(appendFact(nil, "plan", "p"), 0)) +
		string(sealLine(appendFact(nil, "ack", seq{0, 1}, "a"), 0)) +
		string(sealLine(appendFact(nil, "ack", seq{0, 2}, "b"), 0))
	lines := strings.SplitAfter(whole, "\n")
	torn := lines[0] + lines[1][:5] + "\n" + lines[2]
	m, err := readJournal(strings.NewReader(torn), isPlan("p"))
	if err != nil || m.settled[0].has(1) || !m.settled[0].has(2) {
		t.Errorf("got %+v (%v), want the second alone", m.settled, err)
	}
	if m, _ := readJournal(strings.NewReader(whole), isPlan("q")); len(m.settled) != 0 {
		t.Errorf("got %+v of another plan", m.settled)
	}
}

func TestJournalNamesRoundTrip(t *testing.T) {
	for _, tt := range []struct {
		seq
		name, file string
	}{
		{seq{0, 0}, "a", "e0000-00000000-a"},
		{seq{12345, 123456789}, "x-y.tar", "e12345-123456789-x-y.tar"},
	} {
		if got := tt.fileName(tt.name); got != tt.file {
			t.Errorf("got %s, want %s", got, tt.file)
		}
		if a, name, ok := parseName(tt.file); a != tt.seq || name != tt.name || !ok {
			t.Errorf("%s: got %v %q %v", tt.file, a, name, ok)
		}
	}
	for _, file := range []string{"", "e", "e1-2-x", "e0000", "e0000.END", "e0000-00000000", "x0000-00000000-a", "e99999999999999999999-1-a"} {
		if _, _, ok := parseName(file); ok {
			t.Errorf("%q was taken as a position", file)
		}
	}
	if epoch, ok := parseEnd("e0012.END"); epoch != 12 || !ok {
		t.Errorf("got %d %v", epoch, ok)
	}
}

// A read error of the journal was treated as its end: the progress was lost, acknowledged shards
// were redelivered, and nothing was logged.
func TestJournalThatCannotBeReadIsAnError(t *testing.T) {
	dir := t.TempDir()
	directory, err := disk.Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	path := filepath.Join(dir, journalName)
	// A directory can be opened but not read, like a file on a bad sector.
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	w := &Window{dir: dir, stage: &localDir{Dir: directory}, cfg: Config{Manifest: "plan"}}
	_, _, err = w.openJournal()
	if err == nil || !strings.Contains(err.Error(), path+", nothing was changed") {
		t.Errorf("openJournal: %v, want an error that names %s", err, path)
	}
	if begun, err := filepath.Glob(path + ".new*"); err != nil || len(begun) > 0 {
		t.Errorf("a new journal was begun: %q (%v)", begun, err)
	}
}

// With an empty stamp, a journal on a bad sector passed for that of another plan: it was removed, and
// the epoch began again.
func TestEmptyStampWithAnUnreadableJournalIsAnError(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Input: "train", Manifest: "plan", Epochs: 1, Items: items(2, 10), Size: 100}
	cfg.Fetcher = &fake{items: listOf(cfg)}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(cfg.Dir, journalName)
	err = errors.Join(w.Close(), os.Truncate(filepath.Join(cfg.Dir, ".stager", "plan"), 0), os.Remove(journal), os.Mkdir(journal, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = New(cfg); err == nil || !strings.Contains(err.Error(), journal+", nothing was changed") {
		t.Errorf("New: %v, want an error that names %s", err, journal)
	}
	if info, err := os.Stat(journal); err != nil || !info.IsDir() {
		t.Errorf("the journal was removed: %v", err)
	}
}

// After a restart, the counters were "delivered 14, 15 acknowledged": a reader acknowledges a shard
// that an earlier process delivered.
func TestAcknowledgedNeverExceedsDelivered(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(4, 10), Size: 100})
		b.advance(time.Second)
		l := b.must(b.lease("r"))
		b.crash()
		b.advance(time.Second)
		b.ok(b.Ack(l.ID))
		b.advance(time.Second)
		if s := b.Status(); s.Acknowledged != 1 || s.Delivered < s.Acknowledged {
			t.Errorf("delivered %d, acknowledged %d; want 1 acknowledged and as many delivered", s.Delivered, s.Acknowledged)
		}
	})
}

// A loss of power left the stamp empty. The journal and the ends of epochs were then dropped, and
// every acknowledged shard was redelivered.
func TestEmptyStampKeepsThePosition(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 30, Epochs: 1})
		b.idle()
		b.ok(b.Ack(b.must(b.lease("r")).ID))
		b.ok(os.Truncate(b.at(".stager/plan"), 0))
		b.crash()
		b.idle()
		if l := b.must(b.lease("r")); l.Pos != 1 {
			t.Errorf("got position %d, want 1", l.Pos)
		}
		b.ok(os.Truncate(b.at(".stager/plan"), 0))
		b.cfg.Manifest = "plan-2"
		b.crash()
		b.idle()
		if l := b.must(b.lease("r")); l.Pos != 0 {
			t.Errorf("got position %d of another plan, want 0", l.Pos)
		}
	})
}

// An error while a directory is read is neither an acknowledgement nor a removal. The file was
// counted as gone, and stayed.
func TestUnreadableDirectoryIsNotAnAbsentFile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, tt := range []struct {
			name string
			dir  func(*Window) *disk.Subdir
			call func(w *Window, st disk.Stat) error
		}{
			{"remove", func(w *Window) *disk.Subdir { return w.stage.held }, func(w *Window, st disk.Stat) error {
				gone, err := w.stage.remove(first, st.Ino, place{}, true)
				if gone {
					t.Error("the file is reported as removed, and is there")
				}
				return err
			}},
			{"drop another plan's file", func(w *Window) *disk.Subdir { return w.stage.held }, func(w *Window, _ disk.Stat) error {
				return (&recovery{Window: w}).dropHeld(first, false)
			}},
			{"forget a file of after the cursor", func(w *Window) *disk.Subdir { return w.stage.ready }, func(w *Window, _ disk.Stat) error {
				return (&recovery{Window: w}).forgetHeld(first, Cursor{})
			}},
			{"recover", func(w *Window) *disk.Subdir { return w.stage.ready }, func(w *Window, st disk.Stat) error {
				return (&recovery{Window: w, now: time.Now(), memory: newMemory()}).recoverHeld(first, st)
			}},
		} {
			b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
			b.idle()
			st, err := b.stage.held.Stat(first)
			b.ok(err)
			b.ok(tt.dir(b.Window).Close())
			if err := tt.call(b.Window, st); err == nil {
				t.Errorf("%s: got no error, want that of the directory", tt.name)
			}
			if _, err := os.Stat(b.at(".stager/held", first)); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
}

// isPlan returns a function for readJournal.
func isPlan(name string) func(string) bool {
	return func(plan string) bool { return plan == name }
}
