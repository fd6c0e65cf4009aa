package sftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
)

// Status codes of the protocol that the code acts upon. Version 3 has no codes above 8, but some
// servers send those of later versions.
const (
	statusFailure     = 4
	statusBadMessage  = 5
	statusUnsupported = 8
	statusExists      = 11
)

// statuses maps the status codes of servers to kinds and readable messages.
var statuses = map[uint32]struct {
	kind  backends.Kind
	words string
}{
	statusFailure:     {backends.Unknown, "the server reports a failure without a reason"},
	statusBadMessage:  {backends.Invalid, "the server rejects this name or request"},
	6:                 {backends.Unavailable, "the server has no connection to its storage"},
	7:                 {backends.Unavailable, "the server lost the connection to its storage"},
	statusUnsupported: {backends.Unsupported, "the server does not support this operation"},
	10:                {backends.NotExist, "there is no such file or directory"},
	statusExists:      {backends.Exist, "the name already exists"},
	12:                {backends.Permission, "the directory is read-only"},
	14:                {backends.NoSpace, "the server's disk is full"},
	15:                {backends.NoSpace, "the user's quota on the server is used up"},
	17:                {backends.Unavailable, "another client has the file locked"},
	18:                {backends.Exist, "the directory is not empty"},
	19:                {backends.Invalid, "a parent of the path is a file"},
	20:                {backends.Invalid, "the server rejects this name"},
	21:                {backends.NotExist, "the links form a cycle"},
}

// lostError reports that a session has ended. Its pending calls may be retried.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the connection was lost: " + innermost(e.err).Error() }
func (e *lostError) Unwrap() error { return e.err }

// isLost reports whether err leaves open if the server has carried out a request.
func isLost(err error) bool {
	var gone *lostError
	return errors.As(err, &gone) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// status returns the status code of the server in err, or 0.
func status(err error) uint32 {
	var response *sftp.StatusError
	if errors.As(err, &response) {
		return response.Code
	}
	return 0
}

// classify converts an error of the library, the connection or a context to a backends.Error.
func classify(op, key string, err error) error {
	var (
		done  *backends.Error
		local *backends.LocalError
		gone  *lostError
		dns   *net.DNSError
		netw  net.Error
	)
	as := func(kind backends.Kind, words string) error {
		return &backends.Error{Op: op, Key: key, Kind: kind, Err: backends.InWords(words, err)}
	}
	m, known := statuses[status(err)]
	switch {
	case err == nil || errors.As(err, &done) || errors.As(err, &local):
		return err
	case known:
		return as(m.kind, m.words)
	case errors.As(err, &gone):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: gone}
	case errors.Is(err, fs.ErrNotExist):
		return as(backends.NotExist, "there is no such file or directory")
	case errors.Is(err, fs.ErrPermission) && (op == "create" || op == "write" || op == "commit" || op == "delete"):
		return as(backends.Permission, "permission denied: this user may not write to the directory")
	case errors.Is(err, fs.ErrPermission):
		return as(backends.Permission, "permission denied for this user")
	case errors.As(err, &dns) && dns.IsNotFound:
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: fmt.Errorf("unknown host name: %w", err)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: fmt.Errorf("no SSH server at this address: %w", innermost(err))}
	case errors.As(err, &netw), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: innermost(err)}
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.KindOf(err), Err: innermost(err)}
}

// missing is classify for calls that look up a file. No file exists under a name that the server
// rejects.
func missing(op, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) && op == "list" {
		// Empty recognizes a directory that the first write will create.
		return &backends.Error{Op: op, Key: key, Kind: backends.NotExist, Err: backends.InWords("there is no such directory", syscall.ENOENT)}
	}
	if err = classify(op, key, err); backends.KindOf(err) == backends.Invalid {
		return backends.Errorf(backends.NotExist, op, key, "there is no such file")
	}
	return err
}

// innermost returns the root cause of err without the paths and layers around it. It keeps the
// address of a network operation.
func innermost(err error) error {
	for {
		if op, ok := err.(*net.OpError); ok { //nolint:errorlint // each layer is looked at
			return op
		}
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// ended returns an error of kind Canceled if the context has ended, else nil.
func ended(ctx context.Context, op, key string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.Canceled, Err: context.Cause(ctx)}
}

// cleanup returns a time-limited context for work that must run even after ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
}

// Temporary is the prefix of the names of incomplete files.
const Temporary = ".stager-tmp-"

// private is the directory of stager's own data, which holds no objects.
const private = ".stager"

// hidden reports whether a name is one of stager's own.
func hidden(name string) bool {
	return name == private || strings.HasPrefix(name, Temporary)
}

// checkKey rejects keys that cannot be the path of an object.
func checkKey(op, key string) error {
	why := ""
	switch {
	case !fs.ValidPath(key) || key == ".":
		why = `it must be a path without empty, "." and ".." parts, in UTF-8`
	case strings.ContainsRune(key, 0):
		why = "it contains a zero byte"
	case strings.HasPrefix(path.Base(key), Temporary), strings.Contains("/"+key+"/", "/"+private+"/"):
		why = fmt.Sprintf("the names %s and %s… are reserved for stager", private, Temporary)
	default:
		return nil
	}
	return backends.Errorf(backends.Invalid, op, key, "invalid file name: %s", why)
}
