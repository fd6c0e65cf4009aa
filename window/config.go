package window

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// Release is the condition under which a shard is removed.
type Release string

const (
	// ReleaseLease removes a shard once it is acknowledged, by Ack or by the file protocol.
	ReleaseLease Release = "lease"
	// ReleaseUnlink removes a shard once a reader unlinks it or renames it into done/. Lease
	// returns a *ReleaseError.
	ReleaseUnlink Release = "unlink"
	// ReleaseRolling removes the oldest shard that is at least MinAge old when room is needed.
	// Readers do not acknowledge, epochs do not end, and Run continues until its context ends.
	ReleaseRolling Release = "rolling"
	// ReleaseNever removes nothing. One epoch is fetched completely and stays; Run returns when all
	// of it is there.
	ReleaseNever Release = "never"
)

// Fetcher fetches items.
type Fetcher interface {
	// Fetch fills the ranges that in.Missing returns and verifies the whole file. It returns the
	// digest that it verified, if any. Fetch does its own retries: an error ends this attempt. The
	// window handles an error that wraps ErrCorrupt, ErrGone or ENOSPC; after any other error it
	// calls Fetch again later, without limit, and keeps the bytes received so far. Fetch neither
	// publishes nor closes in. Calls run concurrently, each with its own file.
	Fetch(ctx context.Context, item int, in *disk.Incoming) (digest string, err error)
}

// TreeFetcher is a Fetcher that also fetches directories.
type TreeFetcher interface {
	Fetcher
	// FetchTree adds to the tree every file of the item that it lacks, each verified. Otherwise it
	// is like Fetch.
	FetchTree(ctx context.Context, item int, in *disk.IncomingTree) error
}

// Errors that a Fetcher may wrap.
var (
	ErrCorrupt = errors.New("the bytes do not match the checksum")
	ErrGone    = errors.New("the object was removed or has changed")
)

// ErrLater is returned by Config.More when the next item is known only after all items before it
// are finished.
var ErrLater = errors.New("the next shards are unknown until all earlier ones are finished")

// MinReady is the amount that must be ready before the window reports that it is ready.
type MinReady struct {
	Files int
	Bytes int64
}

// Values of Config.OnBad.
const (
	BadFail = "fail" // Run returns a *BadItemError
	BadSkip = "skip" // the position is skipped, and listed in the Status
)

const mostGroups = 1024

// Config configures New. Zero values select the default that is named at the field.
type Config struct {
	Input string // the input's name in logs and metrics
	Dir   string

	Size int64 // limit in bytes
	// CountOwn includes the window's own files in Size: its directories and those of trees, the
	// journal, the reports.
	CountOwn bool
	MinFree  int64 // bytes to leave free on the disk for other programs

	Release  Release       // default ReleaseLease
	Reuse    Reuse         // default ReuseNone
	MinAge   time.Duration // for ReleaseRolling
	MinReady MinReady

	// AnyOrder makes a lease return the lowest position that is ready. Otherwise a lease waits for
	// the lowest undelivered position, so that shards are delivered in the order of the plan,
	// whatever order they are fetched in.
	AnyOrder bool

	// Groups is the number of reader groups that each receive every shard. 0 or 1: all readers
	// share them.
	Groups int

	LeaseTimeout time.Duration // of leases that are not bound to a connection; default 10 min
	Reattach     time.Duration // how long unused leases survive a restart; default 30 s

	Epochs int // 0: unlimited, as with ReleaseRolling
	Items  Items
	Extent *Extent // of all Items; nil: New reads them
	// Order returns the order of an epoch, counted from 0. It covers all nodes; Nobody marks a
	// position that no node delivers. It must return the same order each time, and may take long.
	// nil: as listed.
	Order func(epoch int) Order
	// Unconfirmed means that the caller still checks whether Items are the right ones. Shards are
	// delivered, but the last epoch does not end before Confirm. If they are not, the caller calls
	// Reopen. Requires ReleaseLease or ReleaseUnlink.
	Unconfirmed bool
	// Beginning means that Items are only the first of the plan, those of the first positions of its
	// first epoch. They are delivered; no epoch ends, and no cursor means anything to another window,
	// before Continue. Requires ReleaseLease or ReleaseUnlink, without Reuse, Groups and More.
	Beginning bool
	// Begins returns the number of items of the plan with that Manifest, if it is a beginning of this
	// one, that is, if they are the first positions of the first epoch; 0 if it is none. State of it
	// in the directory, with the same Part, is state of this plan, and so are its cursors. nil: there is
	// no beginning.
	Begins func(manifest string) int
	// Scratch is the number of bytes that files without a name, such as a list of the items, take
	// on the same disk. With CountOwn they count as the window's own files.
	Scratch int64
	// State returns the number of bytes that files of the caller may take in Dir. With CountOwn they
	// count as the window's own files. It runs under the window's lock, so it must not block or call
	// the window. nil: none.
	State func() int64
	// More continues an epoch's order where Order ended, for plans that are not known in advance.
	// The window calls it for the next item once all items before it are reserved, in one call at a
	// time. A call may block until its context ends with Run. The items are appended to Items in
	// the order in which they are returned. io.EOF ends the epoch. ErrLater means that nothing more
	// is known until all items so far are finished; More is then called again. Any other error ends
	// Run. nil: the orders are complete.
	More func(ctx context.Context, epoch int) (Item, error)
	// Waits returns what a blocked call of More waits for.
	Waits func() Cause
	// Finished is called for each position that is acknowledged or skipped from now on. It runs
	// under the window's lock, so it must not block or call the window.
	Finished func(epoch, pos int)
	// First is the epoch to start with, unless the state on disk is further.
	First int
	// Trim returns the position of an epoch of which only some samples are to be used, and how
	// many. A lease reports that number instead of the item's. nil: none.
	Trim func(epoch int) (pos, samples int, some bool)
	// Owns reports whether a position of the order belongs to this node. The answer must be the
	// same for every epoch. nil: all positions do.
	Owns func(pos int) bool
	// Manifest identifies items and order; Part identifies this node's positions. State with other
	// values in the directory is dropped. Its files are removed unless a reader holds them.
	Manifest, Part string

	Fetcher  Fetcher
	Write    disk.Write // how large files are written to the disk; default disk.WriteAuto
	Parallel int        // concurrent fetches; default 4
	OnBad    string     // default BadFail

	Log     *slog.Logger // nil: no logging
	Metrics *Metrics     // nil: not exported

	unsynced bool // for tests without a loss of power: skips fsync
}

// defaults checks the configuration and sets the defaults.
func (c *Config) defaults() error {
	set(&c.Release, ReleaseLease)
	set(&c.Reuse, ReuseNone)
	set(&c.LeaseTimeout, 10*time.Minute)
	set(&c.Reattach, 30*time.Second)
	set(&c.Parallel, 4)
	set(&c.OnBad, BadFail)
	if c.Items == nil {
		c.Items = List(nil)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Order == nil {
		n := c.Items.Len()
		c.Order = func(int) Order { return Sequence(n) }
	}
	if c.Waits == nil {
		c.Waits = func() Cause { return CauseBackend }
	}
	if c.State == nil {
		c.State = func() int64 { return 0 }
	}
	if c.Finished == nil {
		c.Finished = func(int, int) {}
	}
	if c.Owns == nil {
		c.Owns = func(int) bool { return true }
	}
	switch {
	case !slices.Contains([]Release{ReleaseLease, ReleaseUnlink, ReleaseRolling, ReleaseNever}, c.Release):
		return fmt.Errorf("release %q is not one of lease, unlink, rolling, never", c.Release)
	case !slices.Contains([]Reuse{ReuseNone, ReuseFit, ReusePin}, c.Reuse):
		return fmt.Errorf("reuse %q is not one of none, fit, pin", c.Reuse)
	case c.Reuse != ReuseNone && (c.Release == ReleaseRolling || c.Release == ReleaseNever):
		return fmt.Errorf("reuse cannot be used with release %s, which acknowledges nothing: remove reuse", c.Release)
	case c.OnBad != BadFail && c.OnBad != BadSkip:
		return fmt.Errorf("onBad %q is not one of fail, skip", c.OnBad)
	case c.Fetcher == nil:
		return errors.New("a window needs a Fetcher")
	case c.Epochs < 0 || c.Parallel < 0 || c.MinFree < 0 || c.MinAge < 0 || c.LeaseTimeout < 0 || c.Reattach < 0:
		return errors.New("epochs, parallel, minFree, minAge and time-outs cannot be negative")
	case c.More != nil && (c.Release == ReleaseRolling || c.Release == ReleaseNever || c.Reuse != ReuseNone):
		return errors.New("a growing plan requires release lease or unlink, and no reuse")
	case c.Beginning && (c.Release == ReleaseRolling || c.Release == ReleaseNever || c.Reuse != ReuseNone || c.Groups > 1 || c.More != nil):
		return errors.New("the beginning of a plan requires release lease or unlink, and no reuse and groups")
	case c.Unconfirmed && (c.Release == ReleaseRolling || c.Release == ReleaseNever):
		return errors.New("an unconfirmed plan requires release lease or unlink")
	case c.Items.Len() == 0 && c.More == nil:
		return fmt.Errorf("input %s has no items; check its source, include and exclude", c.Input)
	case c.Groups < 0 || c.Groups > mostGroups:
		return fmt.Errorf("%d groups of readers are too many: at most %d are allowed", c.Groups, mostGroups)
	case c.Groups > 1 && c.Release != ReleaseLease:
		return fmt.Errorf("release %s does not support groups of readers; use lease", c.Release)
	case c.Release == ReleaseNever && c.Epochs > 1:
		return fmt.Errorf("release never supports one epoch, not %d; use lease", c.Epochs)
	}
	switch c.Release {
	case ReleaseNever:
		c.Epochs = 1
	case ReleaseRolling:
		c.Epochs = 0 // unlimited
	}
	if err := c.measureItems(); err != nil {
		return err
	}
	return c.budget()
}

// budget returns a *BudgetError if Size is too small to work.
func (c *Config) budget() error {
	largest, total := c.Extent.room, c.Extent.total
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
