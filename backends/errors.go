package backends

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Kind answers what to do about an error.
type Kind uint8

// The kinds of errors. A protocol's classify function maps what its library
// returns to one of them, in one place.
const (
	// Unknown errors are retried a few times, and counted under this name.
	Unknown Kind = iota
	// NotExist: there is no such object, bucket, share or directory. Never retried,
	// and never guessed from a server's failure.
	NotExist
	// Exist: the key is taken, and the caller asked for it to be free.
	Exist
	// Permission: the store knows who asks and says no, or does not know.
	Permission
	// Invalid: the request, the URL or the configuration cannot work as it is.
	Invalid
	// Changed: the object is no longer the version that was asked for.
	Changed
	// Corrupt: the bytes are not those that their size or checksum promise.
	Corrupt
	// NoSpace: the destination is full or over its quota.
	NoSpace
	// Unsupported: the store, or this object in it, needs what stager does not do.
	Unsupported
	// Throttled: the store asks for fewer requests. Retried after a pause.
	Throttled
	// Unavailable: the store cannot be reached or is failing. Retried.
	Unavailable
	// Canceled: the caller gave up.
	Canceled
)

var kindNames = [...]string{
	Unknown: "unknown", NotExist: "not-exist", Exist: "exist", Permission: "permission",
	Invalid: "invalid", Changed: "changed", Corrupt: "corrupt", NoSpace: "no-space",
	Unsupported: "unsupported", Throttled: "throttled", Unavailable: "unavailable",
	Canceled: "canceled",
}

// String is the kind's name as it stands in metrics and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", k)
}

// Retryable tells whether the same request may succeed later.
func (k Kind) Retryable() bool {
	return k == Unknown || k == Throttled || k == Unavailable
}

// Error is what every method of a Backend and a Store returns.
//
// errors.Is finds fs.ErrNotExist, fs.ErrExist and fs.ErrPermission in it by kind,
// and what it wraps.
type Error struct {
	Op         string        // list, stat, read, create, write, commit, delete, open
	Store      string        // the store's redacted name; set by Store
	Key        string        // the key or prefix; may be empty
	Kind       Kind          //
	RetryAfter time.Duration // what the store asked for; 0 if it did not
	Again      bool          // retried although its Kind is not: what it depends on may change, as a file with credentials does
	Err        error         // what happened, without the fields above; never nil
}

// Error says which store, what was tried on which key, and what happened.
func (e *Error) Error() string {
	where := e.Store
	if e.Key != "" {
		if where != "" {
			where += " "
		}
		where += printable(e.Key)
	}
	switch {
	case where == "" && e.Op == "open":
		return e.Err.Error() // it is the URL that is wrong
	case where == "":
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, where, e.Err)
}

// printable quotes keys that would not show as they are.
func printable(key string) string {
	if q := fmt.Sprintf("%q", key); q[1:len(q)-1] != key {
		return q
	}
	return key
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is maps kinds to the errors of io/fs.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Kind == NotExist
	case fs.ErrExist:
		return e.Kind == Exist
	case fs.ErrPermission:
		return e.Kind == Permission
	}
	return false
}

// KindOf is the kind of the outermost Error in err's chain. Without one it knows
// the ends of contexts (Canceled) and the errors of io/fs; the rest is Unknown.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Canceled
	case errors.Is(err, fs.ErrNotExist):
		return NotExist
	case errors.Is(err, fs.ErrExist):
		return Exist
	case errors.Is(err, fs.ErrPermission):
		return Permission
	}
	return Unknown
}

// ErrNothing is in an Error of kind NotExist which says that a place was looked through
// and has nothing of what was looked for.
var ErrNothing = errors.New("nothing is there")

// ErrStartOver is in an Error of a write whose parts are of no use any more, and which
// succeeds when all of it is sent again. Store.Put does so once.
var ErrStartOver = errors.New("the upload must be sent again from its beginning")

// ErrClock is in an Error of kind Permission whose cause is this machine's clock, and
// not the credentials.
var ErrClock = errors.New("the clock of this machine is off by more than the store allows")

// Empty tells whether err says that a place has nothing, as before a job's first run:
// ErrNothing, or a directory that the first write will make. A bucket or a share that is
// not there nobody makes, so that is another matter.
func Empty(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Kind != NotExist {
		return false
	}
	return errors.Is(e.Err, ErrNothing) || e.Op == "list" && errors.Is(e.Err, syscall.ENOENT)
}

// Errorf builds an Error with a text of its own.
func Errorf(kind Kind, op, key, format string, args ...any) *Error {
	return &Error{Op: op, Key: key, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// InWords is err with a text for people, which says all that they need. What err is
// can still be found in it.
func InWords(words string, err error) error { return &inWords{words, err} }

type inWords struct {
	words string
	err   error
}

func (e *inWords) Error() string { return e.words }
func (e *inWords) Unwrap() error { return e.err }
