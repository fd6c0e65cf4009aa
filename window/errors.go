package window

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNoLease says that there is no such lease, or no more.
	ErrNoLease = errors.New("no such lease: it was returned, ran out, or was never given")
	// ErrClosed says that the window does not run any more.
	ErrClosed = errors.New("the window is closed")
)

// BudgetError says that the window cannot work within its size.
type BudgetError struct {
	Have, Need  int64 // in bytes
	Comfortable int64 // with which fetching can run ahead of the readers
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("a window of %d bytes cannot work: it needs %d, and %d to be comfortable", e.Have, e.Need, e.Comfortable)
}

// ReleaseError says that this window has no leases.
type ReleaseError struct {
	Input   string
	Release Release
}

func (e *ReleaseError) Error() string {
	how := "read the files in ready/, nobody acknowledges them"
	if e.Release == ReleaseUnlink {
		how = "read the files in ready/, and acknowledge by unlinking them or renaming them into done/"
	}
	return fmt.Sprintf("input %s has release %s and so no leases: %s", e.Input, e.Release, how)
}

// EndError says to a reader that an epoch is over, or with LeaseRequest.EndEarly that
// nothing of it is left for this reader. It is no failure.
type EndError struct {
	Epoch int
	Early bool // others hold the rest
}

func (e *EndError) Error() string {
	if e.Early {
		return fmt.Sprintf("what is left of epoch %d is with other readers", e.Epoch)
	}
	return fmt.Sprintf("epoch %d has ended", e.Epoch)
}

// Cause is what a reader waits for.
type Cause string

// The causes of waits.
const (
	CauseBackend Cause = "backend" // the store: of what comes next no byte is here yet
	CauseNetwork Cause = "network" // the bytes of what comes next are on their way
	CauseDisk    Cause = "disk"    // the disk is full, or below minFree
	CauseBudget  Cause = "budget"  // readers, or files that are kept open, have the room that is needed
	CauseReaders Cause = "readers" // others hold the rest of the epoch
)

var causes = []Cause{CauseBackend, CauseNetwork, CauseDisk, CauseBudget, CauseReaders}

// WaitError says that nothing can be leased now. It is no failure.
type WaitError struct{ Cause Cause }

func (e *WaitError) Error() string { return "nothing is ready; waiting for " + string(e.Cause) }

func waits(err error) bool {
	_, is := errors.AsType[*WaitError](err)
	return is
}

// BadItemError says why an item could not be delivered.
type BadItemError struct {
	Name       string
	Epoch, Pos int
	Reason     string
	Err        error // what the Fetcher said; nil when readers refused the item
}

func (e *BadItemError) Error() string {
	return fmt.Sprintf("%s (epoch %d, position %d) cannot be delivered: %s", e.Name, e.Epoch, e.Pos, e.Reason)
}

func (e *BadItemError) Unwrap() error { return e.Err }

// SkippedError lists the positions that a window left out, as Config.OnBad allows.
type SkippedError struct{ Items []BadItem }

func (e *SkippedError) Error() string {
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "%d shards were skipped:", len(e.Items))
	for i, item := range e.Items {
		if i == most {
			fmt.Fprintf(&b, " and %d more; the status lists them", len(e.Items)-most)
			break
		}
		fmt.Fprintf(&b, " %s (epoch %d, position %d): %s;", item.Name, item.Epoch, item.Pos, item.Reason)
	}
	return strings.TrimSuffix(b.String(), ";")
}
