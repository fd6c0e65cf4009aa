package window

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/window/disk"
)

// A position may belong to no node, and only some samples of a shard may be needed.
func TestPositionsOfOtherNodesAreSkipped(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{
			Items: items(4, 10), Size: 40, Epochs: 1,
			Order: func(int) Order { return Indexes{3, Nobody, 2, Nobody} },
			Trim:  func(int) (int, int, bool) { return 2, 1, true },
		})
		if got, want := fmt.Sprint(b.positions(0)), "[{0 0 s03.tar 10} {0 2 s02.tar 10}]"; got != want {
			t.Errorf("got the plan %s, want %s", got, want)
		}
		for _, samples := range []int{3, 1} {
			b.idle()
			l := b.must(b.lease("r"))
			if l.Samples != samples {
				t.Errorf("%s: got %d samples, want %d", l.Name, l.Samples, samples)
			}
			b.ok(b.Ack(l.ID))
		}
		b.idle()
		if _, err := b.lease("r"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end of epoch 0", err)
		}
	})
}

func TestShardsArriveInOrderAndLeaveWhenAcknowledged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{
			Items: items(4, 10), Size: 25, Epochs: 1,
			Order: func(int) Order { return Indexes{2, 0, 3, 1} },
		})
		b.idle()
		b.want("ready", "e0000-00000000-s02.tar", "e0000-00000001-s00.tar")
		l := b.must(b.lease("r"))
		want := Lease{
			ID: l.ID, Reader: "r", Path: filepath.Join(b.dir, "ready", "e0000-00000000-s02.tar"), Name: "s02.tar",
			Size: 10, Samples: 2, Digest: "fake:s02.tar", Attempt: 1,
		}
		if l != want {
			t.Errorf("got %+v, want %+v", l, want)
		}
		if data, err := os.ReadFile(l.Path); string(data) != "cccccccccc" {
			t.Errorf("read %q (%v)", data, err)
		}
		if info, err := os.Stat(l.Path); err != nil || info.Mode() != 0o444 {
			t.Errorf("mode %v (%v), want 0444", info.Mode(), err)
		}
		b.ok(b.Ack(l.ID))
		b.ok(b.Ack(l.ID)) // a repeated request
		b.idle()
		b.want("ready", "e0000-00000001-s00.tar", "e0000-00000002-s03.tar")
		for _, name := range []string{"s00.tar", "s03.tar", "s01.tar"} {
			if l = b.must(b.lease("r")); l.Name != name {
				t.Errorf("got %s, want %s", l.Name, name)
			}
			b.ok(b.Ack(l.ID))
			b.idle()
		}
		if _, err := b.lease("r"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end of epoch 0", err)
		}
		b.want("ready", "e0000.END")
		b.want(".stager/held", "e0000.END")
		if s := b.Status(); !s.Done || s.Used != 0 || s.Acknowledged != 4 || s.Delivered != 4 || s.Redelivered != 0 || s.Peak != 20 {
			t.Errorf("got %+v", s)
		}
		if err := b.Ack("nonsense"); !errors.Is(err, ErrNoLease) {
			t.Errorf("got %v, want ErrNoLease", err)
		}
	})
}

func TestEpochEndIsReportedOncePerReader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(2, 10), Size: 100, Epochs: 2})
		b.idle()
		a0, b0 := b.must(b.lease("a")), b.must(b.lease("b"))
		if _, err := b.lease("a"); !isWait(err, CauseReaders) {
			t.Errorf("got %v, want to wait for readers", err)
		}
		b.want("ready", "e0000-00000000-s00.tar", "e0000-00000001-s01.tar") // epoch 1 is fetched but not published
		b.ok(b.Ack(a0.ID))
		b.idle()
		if _, err := b.lease("a"); !isWait(err, CauseReaders) {
			t.Errorf("got %v, want to wait for readers", err)
		}
		b.ok(b.Ack(b0.ID))
		b.idle()
		b.want("ready", "e0000.END", "e0001-00000000-s00.tar", "e0001-00000001-s01.tar")
		for _, reader := range []string{"a", "b"} {
			if _, err := b.lease(reader); !isEnd(err, 0) {
				t.Errorf("%s got %v, want the end of epoch 0", reader, err)
			}
		}
		b.crash()
		b.idle()
		a1, b1 := b.must(b.lease("a")), b.must(b.lease("b"))
		if a1.Epoch != 1 || b1.Epoch != 1 {
			t.Errorf("got epochs %d and %d, want 1", a1.Epoch, b1.Epoch)
		}
		b.ok(b.Ack(a1.ID))
		b.ok(b.Ack(b1.ID))
		b.idle()
		for range 3 { // every call after the last epoch
			if _, err := b.lease("a"); !isEnd(err, 1) {
				t.Errorf("got %v, want the end of epoch 1", err)
			}
		}
		if _, err := b.lease("late"); !isEnd(err, 1) {
			t.Errorf("got %v, want the end of epoch 1", err)
		}
		b.crash()
		b.idle()
		if _, err := b.lease("b"); !isEnd(err, 1) {
			t.Errorf("after a restart got %v, want the end of epoch 1", err)
		}
	})
}

// A reader acknowledged the last shard of an epoch and received its end. Stager was killed before
// it wrote the END marker. The reader received the end again.
func TestEpochEndIsReportedOnceAcrossKill(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 20, Epochs: 3})
		b.idle()
		b.ok(b.Ack(b.must(b.lease("r")).ID))
		if _, err := b.lease("r"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end of epoch 0", err)
		}
		b.want("ready", "e0000-00000000-s00.tar") // nothing was removed yet
		b.crash()
		b.idle()
		b.want("ready", "e0000.END", "e0001-00000000-s00.tar")
		if l, err := b.lease("r"); err != nil || l.Epoch != 1 {
			t.Errorf("got %+v, %v; want the shard of epoch 1", l, err)
		}
	})
}

// The disk was full when the last acknowledgement of an epoch was journaled, so that only the
// removal of the file recorded it. Then there was room, the reader received the end, and stager was
// killed. At the start, the journal had no end of the epoch, so the reader's epoch was reset, and
// it received the end again.
func TestEpochEndIsReportedOnceFromFilesAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 20, Epochs: 3})
		b.idle()
		l := b.must(b.lease("r"))
		full, err := os.Open(b.at(journalName)) // opened read-only, so that writes fail
		b.ok(err)
		room := b.journal.file
		b.journal.file = full
		b.ok(b.Ack(l.ID))
		b.journal.file = room
		b.ok(full.Close())
		if _, err := b.lease("r"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end of epoch 0", err)
		}
		b.crash()
		b.idle()
		if l, err := b.lease("r"); err != nil || l.Epoch != 1 {
			t.Errorf("got %+v, %v; want the shard of epoch 1", l, err)
		}
	})
}

func TestSizeTooSmallIsRejected(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, tt := range []struct {
			cfg               Config
			need, comfortable int64
		}{
			{Config{Items: items(100, 10), Size: 9}, 10, 80},
			{Config{Items: items(3, 10), Size: 0}, 10, 30},
			{Config{Items: items(3, 10), Size: 15, MinReady: MinReady{Bytes: 20}}, 20, 30},
			{Config{Items: items(3, 10), Size: 29, Release: ReleaseNever}, 30, 30},
		} {
			tt.cfg.Dir, tt.cfg.Fetcher = t.TempDir(), &fake{}
			_, err := New(tt.cfg)
			var budget *BudgetError
			if !errors.As(err, &budget) || budget.Need != tt.need || budget.Comfortable != tt.comfortable {
				t.Errorf("%d bytes: got %v, want need %d, comfortable %d", tt.cfg.Size, err, tt.need, tt.comfortable)
			}
		}
	})
}

func TestSecondWindowOnADirectoryIsRejected(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 1), Size: 1})
		var busy *disk.BusyError
		if _, err := New(b.cfg); !errors.As(err, &busy) {
			t.Errorf("got %v, want a BusyError", err)
		}
	})
}

func TestRejectedShardIsRedeliveredThenQuarantined(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, onBad := range []string{BadFail, BadSkip} {
			b := newBench(t, Config{Items: items(2, 10), Size: 20, Epochs: 1, OnBad: onBad})
			b.idle()
			for attempt := 1; attempt <= 3; attempt++ {
				l := b.must(b.lease("r"))
				if l.Pos != 0 || l.Attempt != attempt {
					t.Errorf("got position %d, attempt %d, want 0, %d", l.Pos, l.Attempt, attempt)
				}
				if attempt == 2 {
					b.crash() // the failures are counted across a restart
					b.idle()
					b.ok(b.Return(l.ID))
				} else {
					b.ok(b.Nack(l.ID, "corrupt"))
				}
			}
			b.idle()
			s := b.Status()
			if onBad == BadFail {
				// The crash resets the reader's own count.
				const words = "died 3 times, last: rejected by r: corrupt. It rejected every shard that it received (1): check this reader first"
				if got := s.Quarantined; len(got) != 1 || !strings.Contains(got[0].Reason, words) {
					t.Errorf("got %+v, want %q in it", got, words)
				}
				var bad *BadItemError
				if _, err := b.lease("r"); !errors.As(err, &bad) || bad.Name != "s00.tar" || len(s.Quarantined) != 1 {
					t.Errorf("got %v and %+v, want s00.tar to fail the epoch", err, s)
				}
				continue
			}
			if len(s.Skipped) != 1 || s.Skipped[0].Name != "s00.tar" || s.Bytes[Quarantined] != 0 {
				t.Errorf("got %+v, want s00.tar skipped", s)
			}
			b.crash()
			b.idle()
			b.ok(b.Ack(b.must(b.lease("r")).ID))
			if _, err := b.lease("r"); !isEnd(err, 0) || len(b.Status().Skipped) != 1 {
				t.Errorf("got %v and %+v, want the end, and one skipped", err, b.Status())
			}
		}
	})
}

// At the end of a trainer its workers died one after the other, while some still waited. The first
// one's shard passed from worker to worker, and was quarantined after three deaths. A shard that
// kills workers of each new trainer is bad.
func TestReadersDyingTogetherCountOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, groups := range []int{1, 4} {
			b := newBench(t, Config{Items: items(1, 10), Size: 10, Epochs: 1, Groups: groups})
			b.idle()
			die := func(worker rune) {
				b.ok(b.Return(b.must(b.lease("worker-" + string(worker))).ID))
				b.advance(3 * time.Second)
			}
			for range 2 { // two trainers
				for _, worker := range "abcdefgh" {
					die(worker)
					if bad := b.Status().Quarantined; len(bad) > 0 {
						t.Fatalf("%d groups: with worker %c %+v is condemned, want nothing", groups, worker, bad)
					}
				}
				b.advance(10 * time.Second)
			}
			die('a')
			if s := b.Status(); len(s.Quarantined) != 1 {
				t.Errorf("%d groups: got %+v, want one shard quarantined: three trainers died of it", groups, s)
			}
		}
	})
}

func TestFailedFetchesAreRetried(t *testing.T) {
	down := errors.New("503 slow down")
	corrupt := fmt.Errorf("s00.tar: %w", ErrCorrupt)
	for _, tt := range []struct {
		name    string
		script  []error
		cause   Cause
		after   time.Duration
		skipped bool
		calls   int
	}{
		{"a store that is down", []error{down, down, down}, CauseBackend, 100 + 200 + 400, false, 4},
		{"a wrong checksum", []error{corrupt, corrupt}, CauseBackend, 100 + 200, false, 3},
		{"a checksum that stays wrong", []error{corrupt, corrupt, corrupt}, CauseBackend, 100 + 200, true, 3},
		{"an object that is gone", []error{ErrGone}, CauseBackend, 0, true, 1},
		{"a full disk", []error{unix.ENOSPC, unix.ENOSPC}, CauseDisk, 100 + 200, false, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				b := newBench(t, Config{Items: items(1, 10), Size: 20, Epochs: 1, OnBad: BadSkip})
				b.fetcher.script[0] = tt.script
				b.idle()
				for waited := time.Duration(0); waited < tt.after; waited += 50 {
					if _, err := b.lease("r"); !isWait(err, tt.cause) && tt.cause != CauseDisk {
						t.Fatalf("after %d ms got %v, want to wait for %s", waited, err, tt.cause)
					}
					b.advance(51 * time.Millisecond)
				}
				s := b.Status()
				if s.LastError == "" || (len(s.Skipped) == 1) != tt.skipped || b.fetcher.calls != tt.calls {
					t.Errorf("after %d calls got %+v", b.fetcher.calls, s)
				}
				if tt.skipped {
					if _, err := b.lease("r"); !isEnd(err, 0) || s.Used != 0 {
						t.Errorf("got %v and %d bytes used, want the end", err, s.Used)
					}
				} else {
					b.must(b.lease("r"))
				}
				b.want(".stager/incoming")
			})
		})
	}
}

func TestMinFreeDropsTheLatestShard(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(10, 10), Size: 100, MinFree: 1000, Epochs: 1})
		free := int64(1045)
		took := int64(0)
		b.free = func() (int64, error) { return free - took, nil }
		fill := func() {
			for range 50 { // the disk's free space reflects the window's files
				b.step()
				took = b.space.of(Ready).bytes + b.space.of(Leased).bytes
				time.Sleep(time.Second)
			}
		}
		// New used the real disk to reserve.
		b.step()
		took = b.space.of(Ready).bytes
		fill()
		if n := b.Status().Items[Ready]; n != 4 {
			t.Errorf("%d are ready, want 4 to fit", n)
		}
		if _, err := b.lease("r"); err != nil {
			t.Error(err)
		}
		free = 1015 // another program takes much
		fill()
		s := b.Status()
		if s.Items[Leased] != 1 || s.Items[Ready] != 1 {
			t.Errorf("got %v, want the leased one and the next", s.Items)
		}
		b.want("ready", "e0000-00000000-s00.tar", "e0000-00000001-s01.tar")
		free = 2000
		fill()
		if s := b.Status(); s.Items[Ready] != 9 {
			t.Errorf("got %v, want all of it", s.Items)
		}
	})
}

func TestRollingReplacesTheOldest(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(5, 10), Size: 30, Release: ReleaseRolling, MinAge: time.Minute})
		b.idle()
		b.want("ready", "e0000-00000000-s00.tar", "e0000-00000001-s01.tar", "e0000-00000002-s02.tar")
		var no *ReleaseError
		if _, err := b.lease("r"); !errors.As(err, &no) {
			t.Errorf("got %v, want a ReleaseError", err)
		}
		open, err := os.Open(filepath.Join(b.dir, "ready", "e0000-00000000-s00.tar"))
		b.ok(err)
		defer open.Close()
		b.advance(59 * time.Second)
		b.want("ready", "e0000-00000000-s00.tar", "e0000-00000001-s01.tar", "e0000-00000002-s02.tar")
		b.advance(2 * time.Second)
		b.advance(time.Second)
		if b.stage.seesOpen {
			if s := b.Status(); s.Bytes[Zombie] != 10 || s.Used != 30 {
				t.Errorf("got %+v, want the open one counted", s)
			}
		}
		if got := b.ls("ready")[0]; got == "e0000-00000000-s00.tar" {
			t.Errorf("%s is still there", got)
		}
		open.Close()
		b.advance(time.Minute)
		b.advance(time.Second)
		b.advance(time.Second)
		if s := b.Status(); s.Bytes[Zombie] != 0 || s.Items[Ready] != 3 || s.Peak > 30 {
			t.Errorf("got %+v, want 3 ready", s)
		}
		b.crash()
		b.idle()
		if s := b.Status(); s.Items[Ready] != 3 || s.Used != 30 {
			t.Errorf("after a restart got %+v, want the same 3", s)
		}
	})
}

func TestReleaseNeverKeepsAll(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(9, 10), Size: 90, Release: ReleaseNever})
		b.idle()
		if s := b.Status(); !s.Done || !s.Ready || s.Items[Ready] != 9 {
			t.Errorf("got %+v, want all ready and done", s)
		}
		b.crash()
		b.idle()
		if s := b.Status(); !s.Done || b.fetcher.calls != 9 {
			t.Errorf("after a restart %d fetches and %+v, want 9 and done", b.fetcher.calls, s)
		}
	})
}

// A command once started while the last of its files had no name yet: files that were being
// published counted as ready.
func TestReadyRequiresAPublishedName(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(8, 10), Size: 90, Epochs: 1, Release: ReleaseNever, MinReady: MinReady{Files: 8}})
		for range 100 {
			b.mu.Lock()
			todo := b.plan(time.Now())
			b.mu.Unlock()
			named, err := os.ReadDir(filepath.Join(b.dir, "ready"))
			b.ok(err)
			if b.Ready() && len(named) < 8 {
				t.Fatalf("ready with %d names, want 8", len(named))
			}
			b.act(t.Context(), todo)
		}
		if !b.Ready() {
			t.Error("not ready with all files there")
		}
	})
}

func TestReadyAfterMinReadyOrWhenFull(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(9, 10), Size: 90, MinReady: MinReady{Files: 5}, Parallel: 1})
		for range 3 {
			b.step()
		}
		if b.Ready() {
			t.Error("ready before 5 files are")
		}
		b.idle()
		if !b.Ready() {
			t.Error("not ready with all files there")
		}
		b = newBench(t, Config{Items: items(9, 10), Size: 30, MinReady: MinReady{Files: 5}})
		b.idle()
		if !b.Ready() {
			t.Error("not ready with all there that fits")
		}
	})
}

// The gauge of the peak was registered but never set.
func TestMetricsExportPeakBytes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBench(t, Config{Items: items(4, 1<<20), Size: 8 << 20, Metrics: NewMetrics(reg)})
		b.advance(time.Second)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "stager_window_peak_bytes" {
				continue
			}
			if got, want := f.GetMetric()[0].GetGauge().GetValue(), float64(b.Status().Peak); got != want || got == 0 {
				t.Errorf("stager_window_peak_bytes = %v, want %v of the status", got, want)
			}
			return
		}
		t.Error("there is no stager_window_peak_bytes")
	})
}
