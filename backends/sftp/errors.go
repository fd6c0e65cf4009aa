package sftp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
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
		gone  *fileshare.LostError
		dns   *net.DNSError
		netw  net.Error
	)
	as := func(kind backends.Kind, words string) error {
		return &backends.Error{Op: op, Key: key, Kind: kind, Err: backends.InWords(words, err)}
	}
	m, known := statuses[status(err)]
	switch {
	case isFull(err):
		return as(backends.NoSpace, "the server's disk is full")
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
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: fmt.Errorf("no SSH server at this address: %w", fileshare.Innermost(err))}
	case errors.As(err, &netw), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: fileshare.Innermost(err)}
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.KindOf(err), Err: fileshare.Innermost(err)}
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
