package nfs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/internal/nfs3"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// kinds maps the status codes of servers to kinds and readable messages.
var kinds = map[remote.Status]struct {
	kind  backends.Kind
	words string
}{
	remote.NoEnt:        {backends.NotExist, "there is no such file or directory"},
	remote.NotDir:       {backends.Invalid, "a parent of the path is a file"},
	remote.Exist:        {backends.Exist, "the name already exists"},
	remote.NotEmpty:     {backends.Exist, "the directory is not empty"},
	remote.Perm:         {backends.Permission, "the server does not permit it to this user"},
	remote.Access:       {backends.Permission, "the server denies access to this user: check ?uid=, ?gid= and ?gids=, the file's mode and the export"},
	remote.ROFS:         {backends.Permission, "the export is read-only"},
	remote.WrongSec:     {backends.Permission, "the export requires other credentials, such as Kerberos, or a privileged port"},
	remote.NoSpc:        {backends.NoSpace, "the server's disk is full"},
	remote.DQuot:        {backends.NoSpace, "the user's quota on the server is used up"},
	remote.FBig:         {backends.NoSpace, "the file exceeds the server's size limit"},
	remote.Stale:        {backends.Changed, "the file was removed or replaced while it was used"},
	remote.FHExpired:    {backends.Changed, "the file was removed or replaced while it was used"},
	remote.BadHandle:    {backends.Changed, "the file was removed or replaced while it was used"},
	remote.IO:           {backends.Unavailable, "the server's disk fails"},
	remote.ServerFault:  {backends.Unavailable, "the server has an internal error"},
	remote.Resource:     {backends.Throttled, "the server is short of resources"},
	remote.Delay:        {backends.Throttled, "the server asked to retry later"},
	remote.Grace:        {backends.Unavailable, "the server was restarted and is in its grace period"},
	remote.BadCookie:    {backends.Unavailable, "the directory changed while it was listed"},
	remote.FileOpen:     {backends.Unavailable, "another client has the file open"},
	remote.ShareDenied:  {backends.Unavailable, "another client has the file open exclusively"},
	remote.Locked:       {backends.Unavailable, "another client has the file locked"},
	remote.NameTooLong:  {backends.Invalid, "servers allow at most 255 bytes between two slashes"},
	remote.Inval:        {backends.Invalid, "the server rejects this name or request"},
	remote.BadChar:      {backends.Invalid, "the server rejects the characters of this name"},
	remote.BadName:      {backends.Invalid, "the server rejects this name"},
	remote.IsDir:        {backends.Invalid, "a directory has this name"},
	remote.SymlinkThere: {backends.Unsupported, "this is a symbolic link that keeps changing"},
	remote.WrongType:    {backends.Invalid, "this is not a file"},
	remote.NotSupp:      {backends.Unsupported, "the server does not support this operation"},
	remote.MinorVersion: {backends.Unsupported, "the server does not support NFS 4.1: ?vers=3 may work"},
	remote.ClientInUse:  {backends.Unavailable, "the server confuses this client with another"},
	remote.TooSmall:     {backends.Unsupported, "the server's response exceeds the requested size"},
}

// classify converts an error of the protocol, a connection or a context to a backends.Error.
func classify(op, key string, err error) error {
	var done *backends.Error
	var local *backends.LocalError // an error of the source that is uploaded
	if err == nil || errors.As(err, &done) || errors.As(err, &local) {
		return err
	}
	kind, words := kindOf(err)
	switch {
	case words == "":
	case remote.StatusOf(err) != remote.OK: // the name of the status alone would not help users
		err = backends.InWords(words, err)
	default:
		err = fmt.Errorf("%s: %w", words, err)
	}
	return &backends.Error{Op: op, Key: key, Kind: kind, Err: err}
}

func kindOf(err error) (backends.Kind, string) {
	if k, ok := kinds[remote.StatusOf(err)]; ok {
		return k.kind, k.words
	}
	var (
		broken   *rpc.BrokenError
		denied   *rpc.DeniedError
		mismatch *rpc.MismatchError
		refused  *rpc.RefusedError
		dns      *net.DNSError
		cert     *tls.CertificateVerificationError
		plain    tls.RecordHeaderError
		nowhere  *nowhereError
	)
	switch {
	case errors.As(err, &nowhere):
		return backends.NotExist, ""
	case errors.As(err, &cert):
		return backends.Permission, "the server's certificate is not trusted (set its name with ?sni=)"
	case errors.As(err, &plain):
		return backends.Invalid, "the server does not support TLS: remove ?tls=true"
	case errors.As(err, &dns) && dns.IsNotFound:
		return backends.Unavailable, "unknown host name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return backends.Unavailable, "no NFS server at this address"
	case errors.As(err, &broken): // includes timeouts of the connection
		return backends.Unavailable, ""
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return backends.Canceled, ""
	case errors.As(err, &denied):
		return backends.Permission, "the export may require a client port below 1024 (?resvport=true) or Kerberos, which is not supported"
	case errors.As(err, &mismatch):
		return backends.Unsupported, ""
	case errors.As(err, &refused):
		return backends.Unsupported, ""
	case errors.Is(err, nfs3.ErrFlavor):
		return backends.Permission, ""
	case errors.Is(err, remote.ErrBusy), errors.Is(err, errRestarted):
		return backends.Unavailable, ""
	case errors.Is(err, remote.ErrType):
		return backends.NotExist, ""
	}
	return backends.Unknown, ""
}

// missing is classify for calls that look up a file. No file exists below a file, nor under a name
// that is too long.
func missing(op, key string, err error) error {
	switch remote.StatusOf(err) {
	case remote.NotDir, remote.NameTooLong:
		return &backends.Error{Op: op, Key: key, Kind: backends.NotExist, Err: backends.InWords(kinds[remote.NoEnt].words, err)}
	}
	return classify(op, key, err)
}

// cleanup returns a time-limited context for work that must run even after ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}
