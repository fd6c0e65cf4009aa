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

	// The plan, and how much of it is finished.
	orders   map[int][]int32 // by epoch: those that are being delivered or fetched
	grown    []Item          // from Config.More; their indexes follow those of Config.Items
	lastItem lastItem
	ordering bool // another order is being computed
	// unconfirmed holds the end of the last epoch, see Config.Unconfirmed.
	unconfirmed bool
	growth      growth         // state of the orders that Config.More continues
	low         seq            // all positions before it are finished; its epoch is the current one
	settled     map[seq]bool   // finished positions from low on
	next        seq            // the first position that was never reserved
	top         seq            // the position after the last reserved one
	again       []seq          // positions to fetch again, ascending
	demand      map[int]demand // for the same epochs as orders; empty unless Config.Reuse needs it
	due         seq            // all positions before it were delivered once or are finished; unused with AnyOrder
	history     map[seq]history
	course      course
	skipped     []skip
	failed      error // makes Run return

	// Entries that take space.
	active map[seq]*entry    // unfinished positions
	files  map[string]*entry // by file name
	inodes map[uint64]*entry // published entries, by inode
	totals map[State]*total
	used   int64 // sum of totals
	own    int64 // bytes of the window's own files
	// ownMost is the upper limit for own until the next measurement, at ownAt.
	ownMost int64
	ownAt   time.Time
	peak    int64

	queue       []*entry // Reserved, ascending
	fetching    map[*entry]bool
	aloneUntil  time.Time // end of the first fetch's exclusive time; zero before that fetch
	brought     bool      // a fetch has finished, or files were recovered
	unallocated int64     // reserved bytes that the disk's free space does not reflect yet
	toShow      []*entry  // Ready, of the current epoch, not published yet
	showing     int       // number of entries that are being published
	later       []*entry  // Ready, of the next epoch
	offered     readyHeap // published entries to lease; includes some that are no longer Ready; for ReleaseLease
	aged        []*entry  // the same, oldest first; for ReleaseRolling
	removals    []*entry  // entries whose files are to be removed
	leaving     int64     // bytes of removals that have not been tried yet
	undecided   []*entry  // Acked, before it is known whether the next epoch reuses them
	zombies     []*entry
	zombiesAt   time.Time // next check of the zombies

	ends      ends
	diskPause diskPause
	scans     scans

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
	stats     stats
	ended     error  // returned by Lease once Run has ended
	stop      func() // ends Run and waits for it; nil before Run
	closed    bool
}

type stats struct{ delivered, redelivered, acknowledged, reused int64 }

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
		orders: map[int][]int32{}, demand: map[int]demand{}, settled: map[seq]bool{}, history: map[seq]history{},
		active: map[seq]*entry{}, files: map[string]*entry{}, inodes: map[uint64]*entry{},
		totals: map[State]*total{}, fetching: map[*entry]bool{},
		readers: map[string]*reader{}, leases: map[string]*lease{}, acked: newRecent(),
		growth:      growth{whole: map[int]bool{}},
		unconfirmed: cfg.Unconfirmed,
		all:         reader{name: "(all groups)"}, parts: map[shareKey]bool{},
		cause: CauseBackend, starving: newStarving(time.Now()),
	}
	if w.broadcast() {
		w.came = make([]bool, cfg.Groups)
	}
	for _, s := range holding {
		w.totals[s] = &total{}
	}
	if w.reports, err = openReports(stage.Root(), cfg.CountOwn, cfg.Size); err == nil {
		err = w.recover(time.Now())
	}
	if err != nil {
		return nil, errors.Join(err, w.journal.close(), stage.close())
	}
	for _, words := range w.cautions() {
		w.log.Warn("a guarantee does not hold on this file system", "dir", dir, "why", words)
	}
	w.measureLocked()
	if free, err := w.free(); err == nil && free-cfg.MinFree+w.used < cfg.Size {
		w.log.Warn("disk has less free space than the window's size, the window will wait for space",
			"size", cfg.Size, "has", w.used, "free", free, "min_free", cfg.MinFree)
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
