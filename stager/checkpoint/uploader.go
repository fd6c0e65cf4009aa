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

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/detect"
	"github.com/stager-dev/stager/window/disk"
)

// Mode says what an output holds.
type Mode string

// The modes of an output.
const (
	ModeCheckpoint Mode = "checkpoint" // checkpoints, and plain files beside them
	ModeNone       Mode = "none"       // plain files
)

// When says at which times things are sent. The zero value is Change and Exit.
type When struct {
	Change   bool          // as soon as they are complete
	Interval time.Duration // the newest checkpoint, and files, so often; 0: not
	Exit     bool          // at the end
	Success  bool          // at the end, when the trainer succeeded
	Failure  bool          // at the end, when it did not
}

// Numbering says what numbers checkpoints.
type Numbering string

// What numbers checkpoints.
const (
	NumberAuto   Numbering = "auto" // the number in the name; where there is none, the time of writing
	NumberByName Numbering = "name" // the number in the name only
	NumberByTime Numbering = "time" // the time of writing
)

// Hold bounds what is held of checkpoints before they are complete.
type Hold struct {
	Checkpoints int // at once; 0: none
	Percent     int // of the free space of the directory's file system
}

// DefaultQuietPeriod is how long nothing may change before a checkpoint that nobody
// speaks of counts as complete.
const DefaultQuietPeriod = 10 * time.Second

// Config is what an Uploader is made of.
type Config struct {
	Output      string          // name, for words and metrics
	Dir         string          // the output's directory; made if missing
	Store       *backends.Store // the destination
	Mode        Mode            // empty: ModeCheckpoint
	When        When
	QuietPeriod time.Duration  // 0: DefaultQuietPeriod
	Numbers     Numbering      // empty: NumberAuto
	Hold        *Hold          // nil: two checkpoints and a quarter of the free space
	Grace       time.Duration  // how long the end may take, for forecasts; 0: not known
	Keep        Keep           // which committed steps the store keeps
	Conflict    string         // ConflictFail when empty
	Attempt     int            // how often the job was started before
	Node        int            // which of the job's nodes this is
	Nodes       int            // how many have a part of each step; 0: this one has all of it
	Job         string         // identity of the job, which tells two with one destination apart; of several nodes
	Pod         string         // run of the pod; another one with the same volume is another member
	Stager      string         // version, for the record
	Cursors     func() Cursors // where the inputs stand; nil: nobody knows
	// Reached are such cursors of a moment at which the trainer had used so many samples,
	// as it says. nil: as without its saying so.
	Reached func(Cursors, int64) Cursors
	Log     *slog.Logger // nil: silent
	Metrics *Metrics     // nil: not counted
}

// An Uploader saves one output. All methods may be called from many goroutines at
// once.
type Uploader struct {
	cfg       Config
	log       *slog.Logger
	root      *os.Root
	lock      *disk.Lock // nil until begin
	snapshots *snapshotDir
	member    *member   // nil with a single node
	since     time.Time // of a single node: what is older is of a job of several; zero: nothing is

	directory sync.Mutex        // held by who looks at the directory and takes snapshots
	trails    map[string]*trail // what was seen of checkpoints that are not complete; of who holds directory, as are the next three
	shapes    detect.Shapes     // of complete checkpoints
	early     map[string]*early // what is held before it is known to be complete, by name
	quietOne  *detect.View      // the newest that only a quiet period completed
	shipping  chan struct{}     // holds a token while somebody sends
	wake      chan struct{}     // tells Run that there is something to send
	classes   bool              // the disk serves who reads by classes
	ending    atomic.Bool       // Drain was called: nothing is more urgent than what is saved

	mu          sync.Mutex                 // guards all below
	seen        map[string]*entry          // checkpoints that are not complete, by name
	temporary   map[uint64]bool            // inodes that had temporary names at the last look
	moved       map[string]uint64          // inodes of what was renamed into place, by name
	snaps       map[int64]*snapshot        // complete and not shipped, by step
	explicit    map[string]bool            // names that Commit was called for
	saved       map[int64]bool             // steps that this process committed
	shipped     map[string]shipment        // by name; a hint, kept on the disk
	failed      map[string]failure         // by name
	plain       map[string]*plainFile      // by path
	omitted     map[string]string          // why what lies in the directory is not mirrored, by path
	empty       []Omission                 // what in the directory has no content to mirror
	halfWritten map[string]bool            // checkpoints under temporary names
	there       map[string]backends.Object // what the store mirrors; nil until it was asked
	ledger      *ledger                    // of what was mirrored; nil as long as there is
	uploads     *uploadLog                 // of what is mirrored; nil until it is needed
	own         []string                   // directories committed by this process, oldest first
	ids         map[string]bool            // of uploads from this directory, also of earlier processes; a hint, kept on the disk
	sweepsBlind bool                       // it cannot be looked through
	stood       map[string]stood           // when a name came
	before      Cursors                    // where the inputs stood at the last look
	polls       bool                       // nobody tells that a name came
	swept       bool                       // the destination was looked through for what killed uploads left
	read        map[string]readOnce        // COMMITs; only who holds the shipping token
	nodesSwept  time.Time                  // when records of former nodes were looked for; the same
	uploading   *upload
	complete    StepTime      // newest; step -1 for none
	apart       time.Duration // how long the newest came after the one before; 0: it is the first
	committed   StepTime      // newest; step -1 for none
	upTo        time.Time     // when the newest that this process committed was complete
	mirrored    Mirrored
	missed      []Waiting // what was removed before it was complete, the last mostMissed
	blind       bool
	lastSent    time.Time // when Interval began
	lastRate    float64   // bytes per second of the last upload; 0 before
	lastError   string
	changed     chan struct{} // closed and made anew when any step's fate changes
}

// shipment is a checkpoint of which nothing is left to do.
type shipment struct {
	Step        int64  `json:"step"`
	Fingerprint string `json:"fingerprint"`
	Dir         string `json:"dir,omitempty"` // in the store; empty when newer ones made it needless
	// Complete is when the checkpoint was; zero in hints of before.
	Complete time.Time `json:"complete,omitzero"`
	// Upload is the id of the data of a provisional COMMIT, which a later process of this
	// directory replaces by the fuller checkpoint.
	Upload string `json:"upload,omitempty"`
}

// failure is a checkpoint that is not tried again in the state it is in.
type failure struct {
	step   int64
	print  string
	reason string
	kind   backends.Kind // of the error that Wait returns
	// abandoned is when a checkpoint of several nodes was complete that cannot be saved any
	// more, as the members changed; zero: another reason. See overtakenLocked.
	abandoned time.Time
}

// upload is a checkpoint on its way.
type upload struct {
	snap   *snapshot
	total  int64
	done   atomic.Int64
	start  time.Time
	cancel context.CancelFunc
}

func (u *upload) rate() float64 {
	if took := time.Since(u.start).Seconds(); took > 0 {
		return float64(u.done.Load()) / took
	}
	return 0
}

// BusyError says that another process saves the directory.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another stager saves %s; end it, or give each a directory of its own", e.Dir)
}

// ExitCode is EX_TEMPFAIL: when the other ends, trying again helps.
func (e *BusyError) ExitCode() int { return 75 }

// checkTimeout is how long New asks the destination whether it can be used.
const checkTimeout = 15 * time.Second

// New makes an Uploader: the directory is made, writable for a trainer of any user,
// and taken for this process; the destination is asked whether it can be used.
// A store that cannot be reached is no error, as it may come back.
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
		shipping: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		trails: make(map[string]*trail), seen: make(map[string]*entry), snaps: make(map[int64]*snapshot),
		explicit: make(map[string]bool), saved: make(map[int64]bool), shipped: make(map[string]shipment), failed: make(map[string]failure),
		moved: make(map[string]uint64), early: make(map[string]*early),
		stood: make(map[string]stood), plain: make(map[string]*plainFile), read: make(map[string]readOnce),
		complete: StepTime{Step: -1}, committed: StepTime{Step: -1},
		lastSent: time.Now(), changed: make(chan struct{}),
	}
	u.snapshots = &snapshotDir{root, root.Link, cloneFile, freeSpace, u.log}
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
		u.nodesSwept = time.Now() // other nodes may only restore here: there is little to sweep
		err = u.startAlone()
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// Register returns when this node is registered at the destination, or cannot reach it for
// now. It returns a *RefusedError when another job that is alive saves there. With a single
// node it does nothing.
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
		return errors.New("nodes write at different times, so these cannot number the steps of several nodes")
	case cfg.Hold.Checkpoints < 0 || cfg.Hold.Percent < 0 || cfg.Hold.Percent > 100:
		return fmt.Errorf("hold: want 0 or more checkpoints and 0 to 100 percent (got %+v)", *cfg.Hold)
	case cfg.Keep.Last < 0 || cfg.Keep.Every < 0 || cfg.Keep.Best < 0:
		return fmt.Errorf("less than none cannot be kept: %+v", cfg.Keep)
	case cfg.Keep.Best > 0 && cfg.Keep.Metric == "":
		return errors.New("the best steps cannot be kept without the name of a metric")
	case cfg.Node < 0 || cfg.Node >= max(cfg.Nodes, 1) && cfg.Nodes > 0:
		return fmt.Errorf("node %d is none of %d, which are counted from 0", cfg.Node, cfg.Nodes)
	case cfg.Nodes > 1 && cfg.Mode == ModeCheckpoint && cfg.Job == "":
		return errors.New("several nodes need the identity of their job")
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

// openOutput opens the directory. One that it makes may be written by every user, as
// the trainer often is another one than stager; the sticky bit keeps each of them, and
// stager's own directory, from being renamed and removed by others.
func openOutput(dir string) (*os.Root, error) {
	root, err := disk.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		if root, err = disk.MakeRoot(dir); err == nil {
			err = root.Chmod(".", 0o777|os.ModeSticky) // as above
		}
	}
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(private, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("stager keeps its snapshots in the output directory, and must be able to write there: %w", err), root.Close())
	}
	return root, nil
}

// begin takes the directory, picks up what an earlier process left, and asks the store.
func (u *Uploader) begin() error {
	u.cfg.Metrics.begin(u.cfg.Output, u.cfg.Grace, u.lag)
	lock, err := disk.AcquireFile(u.root, private+"/uploader.lock")
	if errors.As(err, new(*disk.BusyError)) {
		return &BusyError{u.cfg.Dir}
	}
	if err != nil {
		return err
	}
	u.lock = lock
	if text, err := disk.ReadSmall(u.root, shippedName, mostSnapshot); err == nil && json.Unmarshal(text, &u.shipped) != nil {
		u.shipped = make(map[string]shipment) // a hint, and a torn one
	}
	u.recallPace()
	u.recallShapes()
	u.ids = recallIDs(u.root)
	snaps, err := u.snapshots.left()
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
		u.log.Info("a checkpoint of an earlier process waits to be saved", "step", snap.Step)
		u.holdLocked(snap)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	for obj, err := range u.cfg.Store.List(ctx, "step-") {
		if backends.Empty(err) {
			break
		}
		switch backends.KindOf(err) {
		case backends.NotExist, backends.Permission, backends.Invalid, backends.Unsupported:
			return err // and whoever started this tells what to do
		}
		if err != nil {
			u.log.Warn("the destination cannot be reached yet", "error", err)
			break
		}
		if dir, rest, _ := strings.Cut(obj.Key, "/"); rest == commitKey {
			if step, _, ok := parseStepDir(dir); ok && step > u.committed.Step {
				u.committed = StepTime{Step: step}
			}
		}
	}
	return nil
}

// Close gives the directory free. What is not shipped stays for the next process.
func (u *Uploader) Close() error {
	if u.member != nil {
		u.member.close()
	}
	u.ledger.close()
	u.uploads.close()
	var err error
	if u.lock != nil {
		err = u.lock.Close()
	}
	return errors.Join(err, u.root.Close())
}

// holdLocked takes a snapshot into account.
func (u *Uploader) holdLocked(snap *snapshot) {
	u.snaps[snap.Step] = snap
	u.noteIDLocked(snap.ID)
	if !snap.Complete.Before(u.complete.Time) {
		if snap.Step != u.complete.Step && u.complete.Step >= 0 {
			u.apart = snap.Complete.Sub(u.complete.Time)
		}
		u.complete = StepTime{snap.Step, snap.Complete, snap.Evidence, snap.Provisional}
	}
	u.notifyLocked()
}

// notifyLocked wakes those who wait for a step.
func (u *Uploader) notifyLocked() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// shippedName is the hint of what was shipped.
const shippedName = private + "/shipped"

// rememberLocked writes the hint of what was shipped.
func (u *Uploader) rememberLocked() {
	text, err := json.Marshal(u.shipped)
	if err == nil {
		err = disk.ReplaceSmall(u.root, shippedName, text, 0o600, false)
	}
	if err != nil {
		u.log.Warn("what was saved cannot be remembered, so a restart reads it again", "error", err)
	}
}

// Wait returns nil when the step is in the store, and an error when it will not be
// as it is. Of a step that nobody knows it says NotExist at once.
func (u *Uploader) Wait(ctx context.Context, step int64) error {
	for {
		known, err := u.fate(step)
		if known {
			return err
		}
		u.mu.Lock()
		changed := u.changed
		u.mu.Unlock()
		if known, err := u.fate(step); known {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("step %d is not saved yet: %w", step, context.Cause(ctx))
		}
	}
}

// fate is what became of a step, once it is known.
func (u *Uploader) fate(step int64) (known bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if snap := u.snaps[step]; snap != nil {
		return snap.refused != nil, snap.refused
	}
	if u.saved[step] {
		return true, nil
	}
	for _, s := range u.shipped {
		if s.Step == step && s.Dir != "" {
			return true, nil
		} else if s.Step == step {
			return true, backends.Errorf(backends.NotExist, "wait", stepDir(step, 0), "newer checkpoints were complete before it could be sent")
		}
	}
	for name, f := range u.failed {
		if f.step == step {
			return true, backends.Errorf(f.kind, "wait", name, "%s", f.reason)
		}
	}
	for _, e := range u.seen {
		if e.step == step {
			return false, nil
		}
	}
	return true, backends.Errorf(backends.NotExist, "wait", stepDir(step, 0), "no checkpoint of this step is known")
}
