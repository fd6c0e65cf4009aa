package window

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// Window is the directory and the state of one input. Its methods are safe for concurrent use.
type Window struct {
	cfg     Config
	log     *slog.Logger
	metrics meters
	stage   *localDir
	dir     string                // absolute
	nonce   string                // random prefix of the lease ids of this process
	wake    chan struct{}         // wakes Run
	readied chan struct{}         // closed when ready becomes true
	rewound chan struct{}         // closed once Rewind has ended the window
	spawn   func(func())          // starts long-running work of Run; a field for tests
	flush   func(func())          // starts a sync of the journal
	free    func() (int64, error) // free bytes of the disk
	watch   bool                  // watch the directories with inotify

	mu sync.Mutex // guards all fields below

	items      itemTable
	progress   progress
	calls      calls
	reuse      reusePlan
	deliveries deliveries
	// unconfirmed holds the end of the last epoch, see Config.Unconfirmed.
	unconfirmed bool
	failed      error // makes Run return

	// Entries that take space.
	active map[seq]*entry    // unfinished positions
	files  map[string]*entry // by file name
	inodes map[uint64]*entry // published entries, by inode
	space  space

	fetches    fetches
	publishing publishing
	offers     offers   // with ReleaseLease
	aged       []*entry // published entries, oldest first, with ReleaseRolling
	removals   removals
	ends       ends
	diskPause  diskPause
	scans      scans

	// Readers.
	readers  map[string]*reader
	all      reader            // pseudo-reader that holds broadcast entries
	shared   []*entry          // Leased and broadcast, ascending
	parts    map[shareKey]bool // group acknowledgements of unfinished positions
	came     []bool            // by group: it has requested a shard; nil unless broadcast
	waiters  []*waiter
	leases   map[string]*lease
	leaseAt  time.Time // no lease expires before
	issued   int
	acked    recent
	cause    Cause
	starving starving
	ready    bool

	journal   *journal
	reports   *reports
	lastError string
	ended     error  // returned by Lease once Run has ended
	stop      func() // ends Run and waits for it; nil before Run
	closed    bool
}

// New checks the configuration, locks the directory and recovers the state that the last process
// left in it. It returns a *BudgetError if Size is too small, and a *disk.BusyError if another
// process holds the directory.
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
		stage: stage, dir: dir, nonce: hex.EncodeToString(nonce[:]),
		wake: make(chan struct{}, 1), readied: make(chan struct{}), rewound: make(chan struct{}), free: stage.Free, watch: true,
		items: itemTable{input: cfg.Input, listed: cfg.Items}, progress: newProgress(&cfg), reuse: reusePlan{mode: cfg.Reuse, demand: map[int]demand{}},
		active: map[seq]*entry{}, files: map[string]*entry{}, inodes: map[uint64]*entry{},
		fetches: fetches{running: map[*entry]bool{}},
		readers: map[string]*reader{}, leases: map[string]*lease{}, acked: newRecent(),
		unconfirmed: cfg.Unconfirmed,
		all:         reader{name: "(all groups)"}, parts: map[shareKey]bool{},
		cause: CauseBackend, starving: newStarving(time.Now()),
	}
	if w.broadcast() {
		w.came = make([]bool, cfg.Groups)
	}
	w.space = newSpace(w.metrics)
	w.deliveries = deliveries{history: map[seq]history{}, meters: w.metrics}
	if w.reports, err = openReports(stage.Root(), cfg.CountOwn, cfg.Size); err == nil {
		err = w.recover(time.Now())
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
	stop := w.stop
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.endLocked(ErrClosed)
	return errors.Join(w.journal.close(), w.reports.close(), w.stage.close())
}

// Ready reports whether as much is ready as Config.MinReady requires, or as much as is possible.
// Once true, it stays true.
func (w *Window) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
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

// planName identifies the plan that the state in the directory belongs to.
func (w *Window) planName() string { return strings.TrimSpace(w.cfg.Manifest + " " + w.cfg.Part) }

func (w *Window) path(name string) string { return filepath.Join(w.dir, "ready", name) }

// endLocked completes all blocked calls of Lease with err.
func (w *Window) endLocked(err error) {
	w.accountLocked(time.Now())
	w.ended = err
	for _, x := range w.waiters {
		x.got <- outcome{err: err}
	}
	w.waiters = nil
}

// background is the context of log records outside of any call.
var background = context.Background()
