package backends

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Kind classifies an error by how to react to it.
type Kind uint8

// The kinds of errors. Each protocol maps the errors of its library to a kind in one function,
// classify.
const (
	// Unknown errors are retried a few times and counted under this name.
	Unknown Kind = iota
	// NotExist: there is no such object, bucket, share or directory. It is never retried, and never
	// inferred from a server failure.
	NotExist
	// Exist: the key exists, but the caller required it to be absent.
	Exist
	// Permission: the store denied access or rejected the credentials.
	Permission
	// Invalid: the request, the URL or the configuration can never succeed as it is.
	Invalid
	// Changed: the object is no longer in the requested version.
	Changed
	// Corrupt: the bytes do not match their size or checksum.
	Corrupt
	// NoSpace: the destination is full or over quota.
	NoSpace
	// Unsupported: the store, or this object in it, needs a feature that stager lacks.
	Unsupported
	// Throttled: the store requests a lower rate. Retried after a pause.
	Throttled
	// Unavailable: the store is unreachable or failing. Retried.
	Unavailable
	// Canceled: the caller's context ended.
	Canceled
)

var kindNames = [...]string{
	Unknown: "unknown", NotExist: "not-exist", Exist: "exist", Permission: "permission",
	Invalid: "invalid", Changed: "changed", Corrupt: "corrupt", NoSpace: "no-space",
	Unsupported: "unsupported", Throttled: "throttled", Unavailable: "unavailable",
	Canceled: "canceled",
}

// String returns the name of the kind as used in metrics and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", k)
}

// Retryable reports whether the same request may succeed later.
func (k Kind) Retryable() bool {
	return k == Unknown || k == Throttled || k == Unavailable
}

// Error is the error type of all Backend and Store methods.
//
// errors.Is matches fs.ErrNotExist, fs.ErrExist and fs.ErrPermission by kind, and the wrapped
// error.
type Error struct {
	Op         string        // list, stat, read, create, write, commit, delete, open
	Store      string        // the store's redacted name; set by Store
	Key        string        // the key or prefix; may be empty
	Kind       Kind          //
	RetryAfter time.Duration // the delay that the store requested; 0 if none
	Again      bool          // retried regardless of Kind: its cause may change, such as a credentials file
	Err        error         // the cause, without the fields above; never nil
}

// Error returns the operation, the store, the key and the cause.
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
		return e.Err.Error() // the URL itself is wrong
	case where == "":
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, where, e.Err)
}

// mostPrinted is the length of keys that are printed whole: the longest that object stores accept.
const mostPrinted = 1024

// printable quotes keys that contain unprintable characters, and shortens keys that are too long for
// a message.
func printable(key string) string {
	if len(key) > mostPrinted {
		return fmt.Sprintf("%.100q… (%d bytes)", key, len(key))
	}
	if q := fmt.Sprintf("%q", key); q[1:len(q)-1] != key {
		return q
	}
	return key
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is maps kinds to the errors of package io/fs.
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

// KindOf returns the kind of the outermost Error in err's chain. Without an Error, context errors
// map to Canceled and io/fs errors to their kinds. Everything else is Unknown.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	switch {
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

// ErrNothing is wrapped by an Error of kind NotExist when a search of an existing place found no
// match.
var ErrNothing = errors.New("it does not exist")

// ErrStartOver is wrapped by an Error of a write whose parts have become useless. The write
// succeeds when all of it is sent again. Store.Put retries once.
var ErrStartOver = errors.New("the upload must be restarted from the beginning")

// ErrClock is wrapped by an Error of kind Permission that is caused by the clock of this machine,
// not by the credentials.
var ErrClock = errors.New("the clock of this machine is off by more than the store allows")

// ErrProxy is matched by an Error of kind Permission that a proxy returned, which had not passed the
// request and its credentials on to the store.
var ErrProxy = errors.New("the proxy refused the request")

// Empty reports whether err means that a place is empty, as before the first run of a job:
// ErrNothing, or a directory that the first write will create. A missing bucket or share does not
// count, since no write creates it.
func Empty(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Kind != NotExist {
		return false
	}
	return errors.Is(e.Err, ErrNothing) || e.Op == "list" && errors.Is(e.Err, syscall.ENOENT)
}

// Errorf returns an Error with a formatted cause.
func Errorf(kind Kind, op, key, format string, args ...any) *Error {
	return &Error{Op: op, Key: key, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// InWords returns err with words as its complete message. errors.Is and errors.As still see err.
func InWords(words string, err error) error { return &inWords{words, err} }

type inWords struct {
	words string
	err   error
}

func (e *inWords) Error() string { return e.words }
func (e *inWords) Unwrap() error { return e.err }

// LocalError is a failure of the local source or destination of bytes, not of the store. It is
// never retried.
type LocalError struct{ Err error }

func (e *LocalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *LocalError) Unwrap() error { return e.Err }
