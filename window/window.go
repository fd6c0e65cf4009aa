package window

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// Window is the directory and the state of one input. Its methods are safe for concurrent use.
//
// One mutex guards the state, which consists of parts. A part touches only its own fields, and its
// comment says what is always true of it. The methods of Window connect the parts. Methods whose names
// end with Locked require the mutex.
//
// Fetching, publishing, removing, listing and syncing files is done without the mutex; see plan and
// act. File-system calls are made with the mutex only where they are short and must agree with the
// state at that instant:
//   - a record is added to the journal or to a report before the state changes
//   - the rename at the end of a compaction
//   - whether a shard's file is still where it was published, before it is leased or acknowledged
//   - whether a file is open, and how much of the disk is free, before space is given away
//   - the cursor of Rewind, and what Close closes: nothing else happens in the window afterwards
type Window struct {
	cfg     Config
	log     *slog.Logger
	metrics meters
	stage   *localDir
	dir     string                // absolute
	wake    chan struct{}         // wakes Run
	readied chan struct{}         // closed when ready becomes true
	rewound chan struct{}         // closed once Rewind has ended the window
	spawn   func(func())          // starts long-running work of Run; a field for tests
	flush   func(func())          // starts a sync of the journal
	free    func() (int64, error) // free bytes of the disk
	watch   bool                  // watch the directories with inotify

	mu sync.Mutex // guards all parts below

	// The plan.
	items      itemTable
	progress   progress
	calls      calls
	reuse      reusePlan
	deliveries deliveries

	// Files.
	entries    entries
	space      space
	fetches    fetches
	diskPause  diskPause
	publishing publishing
	offers     offers // with ReleaseLease
	aged       []aged // published entries, oldest first, with ReleaseRolling
	removals   removals
	ends       ends
	scans      scans

	// Readers.
	readers readers
	leases  leases
	shares  shares
	waiting waiting

	journal   *journal
	reports   *reports
	life      lifecycle
	lastError string // for the Status
}

// New checks the configuration, locks the directory and recovers the state that the last process
// left in it. It returns a *BudgetError if Size is too small, and a *disk.BusyError if another
// process holds the directory. With Config.Beginning it returns ErrOtherState, too.
func New(cfg Config) (*Window, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	stage, err := openStage(dir, &cfg)
	if err != nil {
		return nil, err
	}
	var nonce [5]byte
	rand.Read(nonce[:]) // never fails
	w := &Window{
		cfg: cfg, log: cfg.Log.With("input", cfg.Input), metrics: cfg.Metrics.of(cfg.Input, cfg.Size),
		stage: stage, dir: dir,
		wake: make(chan struct{}, 1), readied: make(chan struct{}), rewound: make(chan struct{}), free: stage.Free, watch: true,
		items: itemTable{input: cfg.Input, listed: cfg.Items}, progress: newProgress(&cfg), reuse: reusePlan{mode: cfg.Reuse, demand: map[int]demand{}},
		entries: newEntries(), fetches: fetches{running: map[*entry]bool{}},
		readers: readers{}, leases: newLeases(hex.EncodeToString(nonce[:])), shares: newShares(cfg.Groups),
		life: lifecycle{unconfirmed: cfg.Unconfirmed},
	}
	w.space = newSpace(w.metrics)
	w.deliveries = deliveries{history: map[seq]history{}, meters: w.metrics}
	w.waiting = waiting{cause: CauseBackend, starving: newStarving(time.Now()), meters: w.metrics}
	if w.reports, err = openReports(stage.Root(), cfg.CountOwn, cfg.Size); err == nil {
		err = (&recovery{Window: w, now: time.Now()}).run()
	}
	if err != nil {
		return nil, errors.Join(err, w.journal.close(), stage.close())
	}
	for _, words := range w.cautions() {
		w.log.Warn("a guarantee does not hold on this file system", "dir", dir, "why", words)
	}
	w.measureNow()
	if free, err := w.free(); err == nil && free-cfg.MinFree+w.space.used < cfg.Size {
		w.log.Warn("disk has less free space than the window's size, the window will wait for space",
			"size", cfg.Size, "has", w.space.used, "free", free, "min_free", cfg.MinFree)
	}
	return w, nil
}

// Close ends Run if it still runs, and unlocks the directory. Leases and files stay for the next
// process that opens the directory. Close may be called more than once.
func (w *Window) Close() error {
	w.mu.Lock()
	stop := w.life.stop
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.closed {
		return nil
	}
	w.life.closed = true
	w.endLocked(ErrClosed)
	for epoch, order := range w.progress.orders {
		w.progress.forgetItems(epoch, order.Len()) // others may hold a window while the one in its place is opened
	}
	return errors.Join(w.journal.close(), w.reports.close(), w.stage.close())
}

// Ready reports whether as much is ready as Config.MinReady requires, or as much as is possible.
// Once true, it stays true.
func (w *Window) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life.ready
}

// Epoch returns the current epoch, counted from 0.
func (w *Window) Epoch() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress.low.epoch
}

// Epochs returns the number of epochs; 0 means unlimited.
func (w *Window) Epochs() int { return w.cfg.Epochs }

// Readied returns a channel that is closed when Ready becomes true.
func (w *Window) Readied() <-chan struct{} { return w.readied }

// durable reports whether state that must survive a loss of power is synced.
func (w *Window) durable() disk.Durable { return disk.Durable(!w.cfg.unsynced) }

// note wakes Run.
func (w *Window) note() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// troubleLocked stores an error for the Status, and logs it unless it repeats the last one.
func (w *Window) troubleLocked(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	if text != w.lastError {
		w.log.Warn(what, "err", err)
	}
	w.lastError = text
}

func (w *Window) path(name string) string { return filepath.Join(w.dir, "ready", name) }

// endLocked completes all blocked calls of Lease with err.
func (w *Window) endLocked(err error) {
	w.accountLocked(time.Now())
	w.life.ended = err
	w.waiting.end(err)
}

// background is the context of log records outside of any call.
var background = context.Background()
