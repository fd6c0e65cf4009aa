package window

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
)

var (
	// ErrNoLease is returned for an unknown or ended lease.
	ErrNoLease = errors.New("no such lease: it was returned, has expired, or never existed")
	// ErrClosed is returned once the window is closed.
	ErrClosed = errors.New("the window is closed")
)

// BudgetError is returned if Config.Size is too small for the plan.
type BudgetError struct {
	Have, Need  int64 // in bytes
	Comfortable int64 // enough for fetching to run ahead of the readers
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("a window of %d bytes is too small: at least %d are needed, and %d are recommended", e.Have, e.Need, e.Comfortable)
}

// ReleaseError is returned by Lease if the window's release mode has no leases.
type ReleaseError struct {
	Input   string
	Release Release
}

func (e *ReleaseError) Error() string {
	how := "read the files in ready/; they are not acknowledged"
	if e.Release == ReleaseUnlink {
		how = "read the files in ready/, and acknowledge by unlinking them or renaming them into done/"
	}
	return fmt.Sprintf("input %s has release %s, which does not use leases: %s", e.Input, e.Release, how)
}

// EndError reports the end of an epoch to a reader. With LeaseRequest.EndEarly it reports that
// nothing of the epoch is left for this reader. It is not a failure.
type EndError struct {
	Epoch int
	Early bool // other readers hold the remaining shards
}

func (e *EndError) Error() string {
	if e.Early {
		return fmt.Sprintf("other readers hold the rest of epoch %d", e.Epoch)
	}
	return fmt.Sprintf("epoch %d has ended", e.Epoch)
}

// Cause is what a reader waits for.
type Cause string

// The causes of waits.
const (
	CauseBackend Cause = "backend" // the object store: no byte of the next shard has been received
	CauseNetwork Cause = "network" // the next shard is being received
	CauseDisk    Cause = "disk"    // the disk is full, or its free space is below minFree
	CauseBudget  Cause = "budget"  // readers, or files that are kept open, take the space that is needed
	CauseReaders Cause = "readers" // other readers hold the rest of the epoch
)

var causes = []Cause{CauseBackend, CauseNetwork, CauseDisk, CauseBudget, CauseReaders}

// WaitError reports that no shard can be leased now. It is not a failure.
type WaitError struct{ Cause Cause }

func (e *WaitError) Error() string { return "no shard is ready; waiting for " + string(e.Cause) }

func waits(err error) bool {
	_, is := errors.AsType[*WaitError](err)
	return is
}

// BadItemError reports why an item could not be delivered.
type BadItemError struct {
	Name       string
	Epoch, Pos int
	Reason     string
	Err        error // the Fetcher's error; nil if readers refused the item
}

func (e *BadItemError) Error() string {
	return fmt.Sprintf("%s (epoch %d, position %d) cannot be delivered: %s", e.Name, e.Epoch, e.Pos, e.Reason)
}

func (e *BadItemError) Unwrap() error { return e.Err }

// SkippedError lists the positions that a window skipped, as Config.OnBad allows.
type SkippedError struct{ Items []BadItem }

func (e *SkippedError) Error() string {
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s skipped:", english.Plural(len(e.Items), "shard", ""), english.PluralWord(len(e.Items), "was", "were"))
	for i, item := range e.Items {
		if i == most {
			fmt.Fprintf(&b, " and %d more; the status lists them", len(e.Items)-most)
			break
		}
		fmt.Fprintf(&b, " %s (epoch %d, position %d): %s;", item.Name, item.Epoch, item.Pos, item.Reason)
	}
	return strings.TrimSuffix(b.String(), ";")
}
