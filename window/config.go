package window

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// Release says when a shard may go.
type Release string

const (
	// ReleaseLease: when it is acknowledged, by Ack or by a verb on its file.
	ReleaseLease Release = "lease"
	// ReleaseUnlink: when a reader unlinked it or renamed it into done/. There are
	// no leases by call.
	ReleaseUnlink Release = "unlink"
	// ReleaseRolling: when room is needed and it has been there for MinAge, oldest
	// first. Nobody acknowledges, no epoch ends, and Run goes on until it is told to
	// stop.
	ReleaseRolling Release = "rolling"
	// ReleaseNever: never. One epoch is fetched whole and stays; Run returns when all
	// of it is there.
	ReleaseNever Release = "never"
)

// Item is one shard of the plan.
type Item struct {
	Name    string // a safe file name of at most 200 bytes
	Size    int64  // in bytes, on disk; of a tree the sum of disk.Room of its files
	Tree    bool   // it is a directory of files; the Fetcher is a TreeFetcher then
	Beside  int64  // what it takes besides Size: the rest of its last block, directories, names
	UpTo    bool   // a tree may take less than Size, which nobody knows before; the rest is given back when it is there
	Samples int    // 0 if unknown
	Digest  string // such as "crc64nvme:…"; empty if unknown before the fetch
	Version string // of the source; a resumed fetch must be of the same
}

// Fetcher brings items in.
type Fetcher interface {
	// Fetch fills what in.Missing tells, verifies all of it, and returns the digest it
	// verified, if any. It retries for itself: an error ends this try. The window acts
	// on ErrCorrupt, ErrGone and ENOSPC in it; on any other it tries again later,
	// for as long as it takes, with the bytes that have arrived. Fetch neither
	// publishes nor closes in. Several calls run at once, each with its own file.
	Fetch(ctx context.Context, item int, in *disk.Incoming) (digest string, err error)
}

// TreeFetcher is a Fetcher that brings in directories, too.
type TreeFetcher interface {
	Fetcher
	// FetchTree keeps in the tree every file of the item that it does not have, each
	// verified. Else it is like Fetch.
	FetchTree(ctx context.Context, item int, in *disk.IncomingTree) error
}

// What a Fetcher's error may wrap.
var (
	ErrCorrupt = errors.New("the bytes are not those that the checksum promises")
	ErrGone    = errors.New("the object is gone or has changed")
)

// ErrLater is what Config.More says when readers must be done with what there is.
var ErrLater = errors.New("what comes next is known when all before it is settled")

// MinReady is what must be ready before the window says it is.
type MinReady struct {
	Files int
	Bytes int64
}

// What OnBad may be.
const (
	BadFail = "fail" // Run ends with a *BadItemError
	BadSkip = "skip" // the position is skipped, and listed in the Status
)

const mostGroups = 1024

// Config is what New needs to know. Zero values mean the defaults that are told.
type Config struct {
	Input string // the input's name in logs and metrics
	Dir   string

	Size int64 // the bound in bytes
	// CountOwn has Size bound also what the window writes for itself: its directories and
	// those of trees, the journal, the reports.
	CountOwn bool
	MinFree  int64 // what to leave free on the disk for others

	Release  Release       // ReleaseLease
	Reuse    Reuse         // ReuseNone
	MinAge   time.Duration // for ReleaseRolling
	MinReady MinReady

	// AnyOrder has a lease give whatever is ready, the lowest first. Otherwise it waits
	// for the lowest position that nobody has been given: the order in which shards are
	// delivered is the plan's, whatever arrives first.
	AnyOrder bool

	// Groups of readers that each get every shard; 0 or 1: all readers share them.
	Groups int

	LeaseTimeout time.Duration // of leases that are not bound to a connection; 10 min
	Reattach     time.Duration // for which leases outlive a restart, unless they are used; 30 s

	Epochs int // 0: without end, as ReleaseRolling always is
	Items  []Item
	// Order gives the items of an epoch, counted from 0, as indexes of Items, for all
	// nodes, or Nobody for a position that nobody delivers. It must give the same each
	// time, and may take long. nil: as listed.
	Order func(epoch int) []int
	// More goes on with an epoch's order where Order ended, for plans that are not known
	// beforehand. It is asked for the next item when all before it are reserved, in one
	// call at a time, which may take as long as it must and whose context Run ends. The
	// items join Items, in the order of their coming. The epoch ends with io.EOF; with
	// ErrLater nothing more is known before all that was told is settled, and More is
	// asked again then. Any other error ends Run. nil: the orders are whole.
	More func(ctx context.Context, epoch int) (Item, error)
	// Waits tells what a call of More waits for.
	Waits func() Cause
	// Finished is told of each position that is acknowledged or skipped from now on. It is called
	// within the window's lock, so it must not block, nor call the window.
	Finished func(epoch, pos int)
	// First is the epoch to begin with, when nothing on disk says a later one.
	First int
	// Trim tells of an epoch the position of which not all samples are to be taken, and how
	// many of them; a lease tells these in place of the item's. nil: none.
	Trim func(epoch int) (pos, samples int, some bool)
	// Owns tells which positions of the order are this node's, the same in each epoch.
	// nil: all.
	Owns func(pos int) bool
	// Manifest names items and order, and Part the positions that are this node's.
	// State of others in the directory is dropped, and its files are removed unless a
	// reader holds them.
	Manifest, Part string

	Fetcher  Fetcher
	Write    disk.Write // how large files get to the disk; disk.WriteAuto
	Parallel int        // fetches at once; 4
	OnBad    string     // BadFail

	Log     *slog.Logger // nil: nothing is logged
	Metrics *Metrics     // nil: not shown

	unsynced bool // for tests in which no power is lost: the disk is not waited for
}

// defaults checks the configuration and fills it up.
func (c *Config) defaults() error {
	set(&c.Release, ReleaseLease)
	set(&c.Reuse, ReuseNone)
	set(&c.LeaseTimeout, 10*time.Minute)
	set(&c.Reattach, 30*time.Second)
	set(&c.Parallel, 4)
	set(&c.OnBad, BadFail)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Order == nil {
		listed := make([]int, len(c.Items))
		for i := range listed {
			listed[i] = i
		}
		c.Order = func(int) []int { return listed }
	}
	if c.Waits == nil {
		c.Waits = func() Cause { return CauseBackend }
	}
	if c.Finished == nil {
		c.Finished = func(int, int) {}
	}
	if c.Owns == nil {
		c.Owns = func(int) bool { return true }
	}
	switch {
	case !slices.Contains([]Release{ReleaseLease, ReleaseUnlink, ReleaseRolling, ReleaseNever}, c.Release):
		return fmt.Errorf("release %q is none of lease, unlink, rolling, never", c.Release)
	case !slices.Contains([]Reuse{ReuseNone, ReuseFit, ReusePin}, c.Reuse):
		return fmt.Errorf("reuse %q is none of none, fit, pin", c.Reuse)
	case c.Reuse != ReuseNone && (c.Release == ReleaseRolling || c.Release == ReleaseNever):
		return fmt.Errorf("with release %s nothing is acknowledged, and so nothing stays for a next epoch: leave reuse out", c.Release)
	case c.OnBad != BadFail && c.OnBad != BadSkip:
		return fmt.Errorf("%q is none of fail, skip as what to do about bad items", c.OnBad)
	case c.Fetcher == nil:
		return errors.New("a window needs a Fetcher")
	case c.Epochs < 0 || c.Parallel < 0 || c.MinFree < 0 || c.MinAge < 0 || c.LeaseTimeout < 0 || c.Reattach < 0:
		return errors.New("epochs, parallel, minFree, minAge and time-outs cannot be negative")
	case c.More != nil && (c.Release == ReleaseRolling || c.Release == ReleaseNever || c.Reuse != ReuseNone):
		return errors.New("a plan that is not known beforehand goes with release lease or unlink, and without reuse")
	case len(c.Items) == 0 && c.More == nil:
		return fmt.Errorf("input %s has no items; check its source, include and exclude", c.Input)
	case c.Groups < 0 || c.Groups > mostGroups:
		return fmt.Errorf("%d groups of readers cannot be: up to %d", c.Groups, mostGroups)
	case c.Groups > 1 && c.Release != ReleaseLease:
		return fmt.Errorf("release %s knows no groups of readers; use lease", c.Release)
	case c.Release == ReleaseNever && c.Epochs > 1:
		return fmt.Errorf("release never keeps one epoch, not %d; use lease", c.Epochs)
	}
	switch c.Release {
	case ReleaseNever:
		c.Epochs = 1
	case ReleaseRolling:
		c.Epochs = 0 // on and on
	}
	for _, item := range c.Items {
		if err := item.check(); err != nil {
			return err
		}
		if _, can := c.Fetcher.(TreeFetcher); item.Tree && !can {
			return fmt.Errorf("item %s is a directory, and the Fetcher is no TreeFetcher", item.Name)
		}
	}
	return c.budget()
}

// room is what an item takes of the budget.
func (i Item) room() int64 { return i.Size + i.Beside }

func (i Item) check() error {
	switch {
	case i.Name == "" || len(i.Name) > 200 || strings.ContainsAny(i.Name, "/\x00\n"):
		return fmt.Errorf("%q cannot be an item's name: 1 to 200 bytes without \"/\"", i.Name)
	case i.Size < 0 || i.Beside < 0:
		return fmt.Errorf("item %s has a size of %d, and %d besides", i.Name, i.Size, i.Beside)
	}
	return nil
}

// budget refuses a size that cannot work.
func (c *Config) budget() error {
	var largest, total int64
	for _, item := range c.Items {
		largest, total = max(largest, item.room()), total+item.room()
	}
	own := c.leastOwn()
	need := max(largest, c.MinReady.Bytes)
	comfortable := max(need, min(total, 2*int64(c.Parallel)*largest))
	if c.Release == ReleaseNever {
		need, comfortable = total, total
	}
	if c.Size-own < need {
		return &BudgetError{Have: c.Size, Need: need + own, Comfortable: comfortable + own}
	}
	return nil
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
