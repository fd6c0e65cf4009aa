package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/window/disk"
)

// Mode is the kind of content of an output.
type Mode string

// The modes of an output.
const (
	ModeCheckpoint Mode = "checkpoint" // checkpoints, and plain files beside them
	ModeNone       Mode = "none"       // plain files only
)

// When selects the times of uploads. The zero value means Change and Exit.
type When struct {
	Change   bool          // as soon as they are complete
	Interval time.Duration // the newest checkpoint, and files, at this interval; 0: never
	Exit     bool          // when the trainer exits
	Success  bool          // when the trainer exits successfully
	Failure  bool          // when the trainer fails
}

// Numbering selects the source of step numbers.
type Numbering string

// The sources of step numbers.
const (
	NumberAuto   Numbering = "auto" // the number in the name, or else the time of writing
	NumberByName Numbering = "name" // the number in the name only
	NumberByTime Numbering = "time" // the time of writing
)

// Hold limits the snapshots of checkpoints that are not complete yet.
type Hold struct {
	Checkpoints int // at once; 0: none
	Percent     int // of the free space of the directory's file system
}

// DefaultQuietPeriod is how long nothing may change before a checkpoint without other evidence
// counts as complete.
const DefaultQuietPeriod = 10 * time.Second

// Config configures an Uploader.
type Config struct {
	Output      string          // name, for messages and metrics
	Dir         string          // the output's directory; created if missing
	Store       *backends.Store // the destination
	Mode        Mode            // empty: ModeCheckpoint
	When        When
	QuietPeriod time.Duration  // 0: DefaultQuietPeriod
	Numbers     Numbering      // empty: NumberAuto
	Hold        *Hold          // nil: two checkpoints and a quarter of the free space
	Grace       time.Duration  // maximum duration of Drain, for forecasts; 0: unknown
	Keep        Keep           // the committed steps to keep in the store
	Conflict    string         // ConflictFail when empty
	Attempt     int            // number of earlier starts of the job
	Node        int            // index of this node in the job
	Nodes       int            // number of nodes that have a part of each step; 0: this node has all of it
	Job         string         // identity of the job, which distinguishes two jobs with one destination; for several nodes
	Pod         string         // run of the pod; another run with the same volume is another member
	Stager      string         // version, for the record
	Cursors     func() Cursors // returns the input positions; nil: unknown
	// Inputs returns the names of the inputs that Cursors returns once they are open. nil: none.
	Inputs func() []string
	// Lasting returns cursors that a later process understands, too, and waits for them if it must. It
	// leaves out the inputs that have none in time. nil: all cursors are of that kind.
	Lasting func(context.Context, Cursors) Cursors
	// Reached returns the cursors of the moment at which the trainer had used the given number of
	// samples. nil: cursors are not adjusted.
	Reached func(Cursors, int64) Cursors
	Log     *slog.Logger // nil: silent
	Metrics *Metrics     // nil: not counted
}

// Uploader saves one output. Its methods are safe for concurrent use.
type Uploader struct {
	cfg       Config
	log       *slog.Logger
	root      *os.Root
	lock      *disk.Lock // nil until begin
	snapshots *snapshotDir
	plain     *plainFiles
	positions *positions
	renames   *renames
	cleanup   *cleanup
	locks     stepLocks
	member    *member   // nil with a single node
	since     time.Time // single node: older steps belong to a job of several nodes; zero: none do

	directory sync.Mutex // held during a scan and during snapshots
	detection *detection
	early     map[string]*early // snapshots of checkpoints not yet known to be complete, by name; guarded by directory
	noting    sync.Mutex        // held while ids change, on the disk and then in memory
	settling  sync.Mutex        // held by settle
	shipping  chan struct{}     // holds a token during send
	wake      chan struct{}     // signals Run that there is something to send
	classes   bool              // the disk honors I/O classes
	ending    atomic.Bool       // Drain was called: uploads have the highest priority
	holding   atomic.Int64      // nanoseconds that the current or last scan spent on links and snapshots

	rescan chan struct{} // signals Run that a checkpoint waits for another scan

	// mu guards the fields below. While it is held, nothing is read from the disk or written to it, and
	// nobody else is asked, because the status and the metrics must not wait for a file system: what is
	// decided under it is written by settle. The records of several nodes are an exception.
	mu          sync.Mutex
	listings    listings
	seen        map[string]*entry   // incomplete checkpoints, by name
	snaps       map[int64]*snapshot // complete and not uploaded, by step
	explicit    map[string]bool     // names for which Commit was called
	shipped     map[string]shipment // by name; a hint, stored on disk
	unwritten   bool                // shipped changed since it was written
	dropped     []*snapshot         // no longer needed, and not removed from the disk yet
	failed      map[string]failure  // by name
	halfWritten map[string]bool     // checkpoints under temporary names
	own         ownCommits
	ids         map[string]bool // of uploads from this directory, also by earlier processes; a hint, stored on disk
	sending     sending
	results     results
	appeared    map[string]newName
	blind       bool
	lastSent    time.Time // start of the current Interval
	lastError   string
	changed     chan struct{} // closed and replaced when the result of any step changes
}

// shipment is a checkpoint that needs no more work.
type shipment struct {
	Step        int64  `json:"step"`
	Fingerprint string `json:"fingerprint"`
	Dir         string `json:"dir,omitempty"` // in the store; empty when newer ones made it unnecessary
	// Complete is when the checkpoint was complete; zero in hints of older versions.
	Complete time.Time `json:"complete,omitzero"`
	// Upload is the id of the data of a COMMIT that an uploader of this directory wrote. A later
	// process replaces that COMMIT if it was provisional or the trainer wrote the step again.
	Upload string `json:"upload,omitempty"`
	// Provisional is set until the COMMIT is final, as far as this process knows.
	Provisional bool `json:"provisional,omitempty"`
	// Sign is what was known of the files when they were saved, with several nodes.
	Sign group.Sign `json:"sign,omitempty"`
}

// failure is a checkpoint that is not retried in its current state.
type failure struct {
	step   int64
	print  string
	reason string
	kind   backends.Kind // of the error that Wait returns
	// abandoned is when a checkpoint of several nodes was complete that cannot be saved because
	// the members changed; zero: another reason. See overtakenLocked.
	abandoned time.Time
}

// BusyError reports that another process saves the directory.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another stager saves %s; end it, or give each a directory of its own", e.Dir)
}

// checkTimeout limits the check of the destination by New.
const checkTimeout = 15 * time.Second

// New returns an Uploader. It creates the directory, writable for a trainer of any user, locks it
// for this process, and checks the destination. An unreachable store is not an error, because it
// may recover.
func New(cfg Config) (*Uploader, error) {
	if err := cfg.complete(); err != nil {
		return nil, &backends.Error{Op: "open", Key: cfg.Dir, Kind: backends.Invalid, Err: err}
	}
	root, err := openOutput(cfg.Dir)
	if err != nil {
		return nil, err
	}
	u := &Uploader{
		cfg: cfg, log: cfg.Log.With("output", cfg.Output), root: root,
		shipping: make(chan struct{}, 1), wake: make(chan struct{}, 1), rescan: make(chan struct{}, 1),
		seen: make(map[string]*entry), snaps: make(map[int64]*snapshot),
		explicit: make(map[string]bool), shipped: make(map[string]shipment), failed: make(map[string]failure),
		early: make(map[string]*early), appeared: make(map[string]newName), own: newOwnCommits(),
		results:  results{complete: StepTime{Step: -1}, committed: StepTime{Step: -1}},
		lastSent: time.Now(), changed: make(chan struct{}),
	}
	u.snapshots = &snapshotDir{root, root.Link, sys.Clone, freeSpace, u.log}
	u.positions = &positions{cfg: &u.cfg, stood: make(map[string]stood)}
	u.renames = &renames{root: root, to: make(map[string]uint64)}
	u.cleanup = newCleanup(cfg.Store)
	u.detection = &detection{cfg: &u.cfg, log: u.log, root: root, trails: make(map[string]*trail)}
	u.plain = &plainFiles{cfg: &u.cfg, log: u.log, root: root}
	u.classes = hasClasses(root)
	if err := u.begin(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	switch {
	case cfg.Mode != ModeCheckpoint:
	case cfg.Nodes > 1:
		var m *member
		if m, err = newMember(u); err == nil {
			u.member = m
			m.start()
		}
	default:
		u.cleanup.nodesSwept = time.Now() // nothing to sweep yet: other nodes at most restore here
		err = u.startAlone()
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// Register returns when this node is registered at the destination, or cannot reach it for now.
// It returns a *RefusedError when another live job saves there. With a single node it does
// nothing.
func (u *Uploader) Register(ctx context.Context) error {
	if u.member == nil {
		return nil
	}
	return u.member.register(ctx)
}

func (cfg *Config) complete() error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.QuietPeriod <= 0 {
		cfg.QuietPeriod = DefaultQuietPeriod
	}
	if cfg.When == (When{}) {
		cfg.When = When{Change: true, Exit: true}
	}
	if cfg.Mode == "" {
		cfg.Mode = ModeCheckpoint
	}
	if cfg.Numbers == "" {
		cfg.Numbers = NumberAuto
	}
	if cfg.Hold == nil {
		cfg.Hold = &Hold{Checkpoints: 2, Percent: 25}
	}
	switch {
	case cfg.Dir == "":
		return errors.New("an output needs a directory")
	case cfg.Store == nil:
		return errors.New("an output needs a destination")
	case cfg.Mode != ModeCheckpoint && cfg.Mode != ModeNone:
		return fmt.Errorf("unknown mode %q; known are %s, %s", cfg.Mode, ModeCheckpoint, ModeNone)
	case cfg.Numbers != NumberAuto && cfg.Numbers != NumberByName && cfg.Numbers != NumberByTime:
		return fmt.Errorf("unknown numbering %q; known are %s, %s, %s", cfg.Numbers, NumberAuto, NumberByName, NumberByTime)
	case cfg.Numbers == NumberByTime && cfg.Nodes > 1:
		return errors.New("with several nodes, steps cannot be numbered by time, because nodes write at different times")
	case cfg.Hold.Checkpoints < 0 || cfg.Hold.Percent < 0 || cfg.Hold.Percent > 100:
		return fmt.Errorf("hold: want 0 or more checkpoints and 0 to 100 percent (got %+v)", *cfg.Hold)
	case cfg.Keep.Last < 0 || cfg.Keep.Every < 0 || cfg.Keep.Best < 0:
		return fmt.Errorf("keep: want 0 or more (got %+v)", cfg.Keep)
	case cfg.Keep.Best > 0 && cfg.Keep.Metric == "":
		return errors.New("keeping the best steps needs the name of a metric")
	case cfg.Node < 0 || cfg.Node >= max(cfg.Nodes, 1) && cfg.Nodes > 0:
		return fmt.Errorf("node %d is out of range: the job has %s, counted from 0", cfg.Node, english.Plural(cfg.Nodes, "node", ""))
	case cfg.Nodes > 1 && cfg.Mode == ModeCheckpoint && cfg.Job == "":
		return errors.New("with several nodes, the identity of the job must be set")
	}
	dir, err := filepath.Abs(cfg.Dir)
	cfg.Dir = dir
	return errors.Join(err, checkConflict(cfg.Conflict))
}

func checkConflict(mode string) error {
	switch mode {
	case "", ConflictFail, ConflictOverwrite, ConflictSuffix:
		return nil
	}
	return fmt.Errorf("unknown conflict %q; known are %s, %s, %s", mode, ConflictFail, ConflictOverwrite, ConflictSuffix)
}

// openOutput opens the directory. If it creates the directory, every user may write there,
// because the trainer often runs as another user than stager. The sticky bit prevents users from
// renaming or removing each other's files and stager's own directory.
func openOutput(dir string) (*os.Root, error) {
	root, err := disk.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		if root, err = disk.MakeRoot(dir); err == nil {
			err = root.Chmod(".", 0o777|os.ModeSticky) // see the doc comment
		}
	}
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(private, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("stager stores its snapshots in the output directory, so the directory must be writable: %w", err), root.Close())
	}
	return root, nil
}

// begin locks the directory, loads the state of an earlier process, and checks the store.
func (u *Uploader) begin() error {
	u.cfg.Metrics.begin(u.cfg.Output, u.cfg.Grace, u.lag)
	if err := u.restoreModes(); err != nil {
		return err
	}
	lock, err := disk.AcquireFile(u.root, private+"/uploader.lock")
	if errors.As(err, new(*disk.BusyError)) {
		return &BusyError{u.cfg.Dir}
	}
	if err != nil {
		return err
	}
	u.lock = lock
	if text, err := disk.ReadSmall(u.root, shippedName, mostSnapshot); err == nil && json.Unmarshal(text, &u.shipped) != nil {
		u.shipped = make(map[string]shipment) // a corrupt hint
	}
	u.recallPace()
	u.detection.recallShapes()
	u.reportHints()
	u.ids = recallIDs(u.root)
	snaps, err := u.snapshots.left(u.missUnusable)
	if err == nil {
		err = u.recallEarly()
	}
	if err != nil {
		return err
	}
	for _, snap := range snaps {
		if twin := u.snaps[snap.Step]; twin != nil && twin.Complete.After(snap.Complete) {
			u.snapshots.drop(snap)
			continue
		} else if twin != nil {
			u.snapshots.drop(twin)
		}
		u.log.Info("found a checkpoint of an earlier process that waits to be saved", "step", snap.Step)
		if !u.ids[snap.ID] {
			u.noteIDs(snap.ID)
		}
		u.holdLocked(snap)
		u.warnOfUnknownPositions(snap)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	for obj, err := range u.cfg.Store.List(ctx, "step-") {
		if backends.Empty(err) {
			break
		}
		switch backends.KindOf(err) {
		case backends.NotExist, backends.Permission, backends.Invalid, backends.Unsupported:
			return err // the caller reports what to do
		}
		if err != nil {
			u.log.Warn("cannot reach the destination yet", "error", err)
			break
		}
		if dir, rest, _ := strings.Cut(obj.Key, "/"); rest == commitKey {
			if step, _, ok := parseStepDir(dir); ok {
				u.results.isFound(step)
			}
		}
	}
	return nil
}

// Close releases the directory. The next process uploads the remaining snapshots.
func (u *Uploader) Close() error {
	if u.member != nil {
		u.member.close()
	}
	u.cleanup.end(u.log)
	u.plain.close()
	u.settle()
	var err error
	if u.lock != nil {
		err = u.lock.Close()
	}
	return errors.Join(err, u.root.Close())
}

// holdLocked registers a snapshot, whose id is noted.
func (u *Uploader) holdLocked(snap *snapshot) {
	u.listings.place(snap)
	u.snaps[snap.Step] = snap
	u.ids[snap.ID] = true
	u.results.isComplete(snap)
	u.notifyLocked()
}

// notifyLocked wakes the callers of Wait.
func (u *Uploader) notifyLocked() {
	close(u.changed)
	u.changed = make(chan struct{})
}
