package window

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// Window is one input's directory and what it knows about it. Its methods may be
// called from many goroutines at once.
type Window struct {
	cfg     Config
	log     *slog.Logger
	metrics meters
	stage   *localDir
	dir     string                // absolute
	nonce   string                // makes the ids of this process's leases its own
	wake    chan struct{}         // tells Run that there is something to plan
	readied chan struct{}         // closed when ready becomes true
	rewound chan struct{}         // closed when Rewind has ended the window
	spawn   func(func())          // how Run starts what takes long
	flush   func(func())          // how it starts a sync
	free    func() (int64, error) // what the disk has left
	watch   bool                  // ask the kernel for news of the directories

	mu sync.Mutex // guards all below

	// The plan and how far it is settled.
	orders   map[int][]int  // of the epochs that are being delivered or fetched
	ordering bool           // another one is on its way
	growth   growth         // of those that Config.More goes on with
	low      seq            // everything before it is settled; its epoch is the current one
	settled  map[seq]bool   // what else is
	next     seq            // the first that was never reserved
	top      seq            // behind the last that was
	again    []seq          // those that are planned anew, ascending
	demand   map[int]demand // of the same epochs as orders; empty unless Config.Reuse asks for it
	due      seq            // everything before it was given once, or is settled; unless AnyOrder
	history  map[seq]history
	course   course
	skipped  []skip
	failed   error // ends Run

	// What takes room.
	active map[seq]*entry    // positions that are not settled
	files  map[string]*entry // entries by the name of their file
	inodes map[uint64]*entry // those that were shown
	totals map[State]*total
	used   int64 // the sum of totals
	own    int64 // what the window's own files take
	// ownMost is what they can take until they are looked at again, from ownAt on.
	ownMost int64
	ownAt   time.Time
	peak    int64

	queue       []*entry // Reserved, ascending
	fetching    map[*entry]bool
	aloneUntil  time.Time // of the first fetch; zero before it
	brought     bool      // a fetch has ended, or there was something already
	unallocated int64     // bytes reserved that the disk does not know of yet
	toShow      []*entry  // Ready and of the current epoch, and not shown yet
	showing     int       // and being shown
	later       []*entry  // Ready and of the next epoch
	offered     readyHeap // Ready and shown, and some that were; for ReleaseLease
	aged        []*entry  // the same, oldest first; for ReleaseRolling
	burials     []*entry  // whose files are to go
	leaving     int64     // their bytes
	undecided   []*entry  // Acked, and nobody knows yet whether the next epoch wants them
	zombies     []*entry
	zombiesAt   time.Time // of the next look
	ends        []int     // epochs whose end is to be marked
	endsAt      time.Time // not before

	diskUntil time.Time // no fetch before
	diskTries int

	scanAt   time.Time // of the next look at the directories
	scanSoon time.Time // of one that somebody asked for, not before this
	scanWant bool
	strange  map[string]bool // files in ready/ that are not ours

	// Readers.
	readers  map[string]*reader
	all      reader            // has what is broadcast
	shared   []*entry          // Leased and broadcast, ascending
	parts    map[shareKey]bool // acknowledged, of positions that are not settled
	came     []bool            // by group, when it is broadcast
	waiters  []*waiter
	leases   map[string]*lease
	leaseAt  time.Time // no lease runs out before
	issued   int
	acked    recent
	cause    Cause
	starving starving
	ready    bool

	journal   *journal
	compactAt time.Time // not before
	syncAt    time.Time // of the next sync of the journal
	syncing   bool
	reports   *reports
	reported  *ReportSum // of the last epoch that was summed
	lastError string
	stats     stats
	ended     error  // what Lease says after Run has ended
	stop      func() // ends Run and waits for it; nil before Run
	closed    bool
}

type stats struct{ delivered, redelivered, acknowledged, reused int64 }

// New checks the configuration, takes the directory, and finds out where its last
// process left it. It returns a *BudgetError or *disk.BusyError for what these say.
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
	if cfg.More != nil {
		cfg.Items = slices.Clone(cfg.Items) // they grow
	}
	w := &Window{
		cfg: cfg, log: cfg.Log.With("input", cfg.Input), metrics: cfg.Metrics.of(cfg.Input, cfg.Size),
		stage: stage, dir: dir, nonce: hex.EncodeToString(nonce[:]),
		wake: make(chan struct{}, 1), readied: make(chan struct{}), rewound: make(chan struct{}), free: stage.Free, watch: true,
		orders: map[int][]int{}, demand: map[int]demand{}, settled: map[seq]bool{}, history: map[seq]history{},
		active: map[seq]*entry{}, files: map[string]*entry{}, inodes: map[uint64]*entry{},
		totals: map[State]*total{}, fetching: map[*entry]bool{}, strange: map[string]bool{},
		readers: map[string]*reader{}, leases: map[string]*lease{}, acked: newRecent(),
		growth: growth{whole: map[int]bool{}},
		all:    reader{name: "(all groups)"}, parts: map[shareKey]bool{},
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
		w.log.Warn("what is promised does not hold here", "dir", dir, "why", words)
	}
	w.measureLocked()
	if free, err := w.free(); err == nil && free-cfg.MinFree+w.used < cfg.Size {
		w.log.Warn("the disk has less room than the window may take: it will wait for room before it is full",
			"size", cfg.Size, "has", w.used, "free", free, "min_free", cfg.MinFree)
	}
	return w, nil
}

// Close lets go of the directory, after ending Run if it still runs. Leases and files
// stay: who opens the directory next goes on with them. It may be called again.
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

// Ready tells whether as much is ready as Config.MinReady asks for, or as much as
// there can be. It stays true once it was.
func (w *Window) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
}

// Epochs is how many there are; 0: they have no end.
func (w *Window) Epochs() int { return w.cfg.Epochs }

// Readied is closed when Ready becomes true.
func (w *Window) Readied() <-chan struct{} { return w.readied }

// durable reports whether what must outlive a loss of power is synced.
func (w *Window) durable() disk.Durable { return disk.Durable(!w.cfg.unsynced) }

// note wakes Run.
func (w *Window) note() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// troubleLocked keeps an error for the Status, and logs it when it is news.
func (w *Window) troubleLocked(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	if text != w.lastError {
		w.log.Warn(what, "err", err)
	}
	w.lastError = text
}

// planName is what the state in the directory belongs to.
func (w *Window) planName() string { return strings.TrimSpace(w.cfg.Manifest + " " + w.cfg.Part) }

func (w *Window) path(name string) string { return filepath.Join(w.dir, "ready", name) }

// endLocked tells those who wait that nothing more comes.
func (w *Window) endLocked(err error) {
	w.accountLocked(time.Now())
	w.ended = err
	for _, x := range w.waiters {
		x.got <- outcome{err: err}
	}
	w.waiters = nil
}

// background is where log lines belong that no call is waiting for.
var background = context.Background()
