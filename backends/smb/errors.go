package smb

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"unicode/utf16"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// Status codes of [MS-ERREF] that the code acts upon. The statuses map also lists codes that are
// only reported.
const (
	statusInvalidParameter = 0xC000000D
	statusNoSuchFile       = 0xC000000F
	statusNotSupported     = 0xC00000BB
	statusSharingViolation = 0xC0000043
	statusDeletePending    = 0xC0000056
	statusLogonFailure     = 0xC000006D
	statusBadNetworkName   = 0xC00000CC
	statusNameDeleted      = 0xC00000C9
	statusSessionDeleted   = 0xC0000203
	statusSessionExpired   = 0xC000035C
	statusFileClosed       = 0xC0000128
	statusNotEmpty         = 0xC0000101
)

// meaning is the kind and message of a status code.
type meaning struct {
	kind  backends.Kind
	words string // "" keeps the message of the library, which is Microsoft's
}

var statuses = map[uint32]meaning{
	statusLogonFailure: {backends.Permission, "wrong user name or password"},
	0xC000006E:         {backends.Permission, "the account is restricted and may not log in this way"},
	0xC000006F:         {backends.Permission, "the account may not log in at this hour"},
	0xC0000070:         {backends.Permission, "the account may not log in from this machine"},
	0xC0000071:         {backends.Permission, "the password has expired"},
	0xC0000072:         {backends.Permission, "the account is disabled"},
	0xC0000193:         {backends.Permission, "the account has expired"},
	0xC0000224:         {backends.Permission, "the password must be changed before the account may log in"},
	0xC0000234:         {backends.Permission, "the account is locked, usually after too many wrong passwords"},
	0xC000015B:         {backends.Permission, "the account may not log in over the network"},
	0xC0000064:         {backends.Permission, "the server does not know this user"},
	0xC00000A8:         {backends.Permission, "the server rejects the Kerberos ticket; a Samba server outside a domain does so if it contains Windows groups (PAC)"},
	0xC0000133:         {backends.Invalid, "the clocks of this machine and the server differ by more than Kerberos allows: synchronize them"},

	statusBadNetworkName: {backends.NotExist, "the server has no share of this name"},
	0xC00000CB:           {backends.Invalid, "the share is a printer or a pipe, not a directory"},
	0xC00000A2:           {backends.Permission, "the share is read-only"},
	0xC0000257:           {backends.Unsupported, "the directory is on another server (DFS), which is not followed: use that server and share in the URL"},
	statusNotSupported:   {backends.Unsupported, "the server does not support this; stager supports SMB 2.0.2 to 3.1.1"},

	statusNoSuchFile:       {backends.NotExist, "there is no such file"},
	statusDeletePending:    {backends.NotExist, "the file is being removed"},
	statusSharingViolation: {backends.Unavailable, "another client has the file open exclusively"},
	0xC0000054:             {backends.Unavailable, "another client has locked this part of the file"},

	0xC000007F: {backends.NoSpace, "the share's disk is full"},
	0xC0000044: {backends.NoSpace, "the quota of this user is used up"},
	0xC0000904: {backends.NoSpace, "the file exceeds the size limit of the share's file system"},

	0xC0000033: {backends.Invalid, "the server rejects this name"},
	0xC0000039: {backends.Invalid, "the server rejects this path"},
	0xC000003B: {backends.Invalid, "the server rejects this path"},
	0xC0000106: {backends.Invalid, "the name is too long for the server"},
	0xC00000BA: {backends.Invalid, "a directory has this name"},
	0xC0000103: {backends.Invalid, "a parent of the key is a file"},

	0xC000009A: {backends.Throttled, "the server is short of resources"},
	0xC0000205: {backends.Throttled, "the server is short of resources"},
	0xC00000D0: {backends.Throttled, "the server accepts no more connections"},

	statusNameDeleted:    {backends.Unavailable, "the server closed the share"},
	statusSessionDeleted: {backends.Unavailable, "the server ended the session"},
	statusSessionExpired: {backends.Unavailable, "the session expired"},
	statusFileClosed:     {backends.Unavailable, "the server closed the file"},
	0xC0000008:           {backends.Unavailable, "the server closed the file"},
	0xC000005E:           {backends.Unavailable, "the server cannot reach a domain controller to check the password"},
	0xC00000B5:           {backends.Unavailable, ""},
	0xC0000120:           {backends.Unavailable, ""},
	0xC0000185:           {backends.Unavailable, "the server's disk fails"},
	0xC00000E9:           {backends.Unavailable, "the server's disk fails"},
	0xC000020C:           {backends.Unavailable, "the server closed the connection"},
}

// status returns the status code of the server in err, or 0.
func status(err error) uint32 {
	var answer *smb2.ResponseError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return 0
}

// classify converts an error of the library to a backends.Error.
func classify(op, key string, err error) error {
	var (
		done    *backends.Error
		local   *backends.LocalError
		gone    *fileshare.LostError
		invalid *smb2.InvalidResponseError
		conn    *smb2.TransportError
		net     net.Error
	)
	say := func(kind backends.Kind, words string) error {
		return &backends.Error{Op: op, Key: key, Kind: kind, Err: errors.New(words)}
	}
	m, known := statuses[status(err)]
	switch {
	case err == nil || errors.As(err, &done) || errors.As(err, &local):
		return err
	case known && m.words != "":
		return say(m.kind, m.words)
	case known:
		return &backends.Error{Op: op, Key: key, Kind: m.kind, Err: innermost(err)}
	case errors.As(err, &gone):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: gone}
	case errors.Is(err, smb2.ErrRequestNotAccepted):
		return say(backends.Throttled, "the server accepts no more connections")
	case errors.Is(err, fs.ErrNotExist):
		return say(backends.NotExist, "there is no such file")
	case errors.Is(err, fs.ErrExist):
		return say(backends.Exist, "the key already exists")
	case errors.Is(err, fs.ErrPermission) && (op == "create" || op == "write" || op == "commit" || op == "delete"):
		return say(backends.Permission, "permission denied: the share or the directory is read-only for this user")
	case errors.Is(err, fs.ErrPermission):
		return say(backends.Permission, "permission denied for this user")
	case errors.As(err, &conn), errors.As(err, &invalid), errors.As(err, &net):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: innermost(err)}
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.KindOf(err), Err: innermost(err)}
}

// missing is classify for calls that look up a file. It returns NotExist for kind Invalid: no file
// exists below a file, nor under a name that the server rejects.
func missing(op, key string, err error) error {
	err = classify(op, key, err)
	if backends.KindOf(err) == backends.Invalid {
		return backends.Errorf(backends.NotExist, op, key, "there is no such file")
	}
	return err
}

// innermost is fileshare.Innermost for errors of the library.
func innermost(err error) error {
	var transport *smb2.TransportError // it has no Unwrap
	if errors.As(err, &transport) {
		return innermost(transport.Err)
	}
	return fileshare.Innermost(err)
}

// reserved lists the characters that SMB does not allow in names.
const reserved = `:*?"<>|`

// checkKey rejects keys that cannot name a file on a share. If mapped is true, reserved characters
// are sent as others and are allowed.
func checkKey(op, key string, mapped bool) error {
	why := ""
	if !fs.ValidPath(key) || key == "." {
		why = `it must be a path without empty, "." and ".." parts, in UTF-8`
	}
	for part := range strings.SplitSeq(key, "/") {
		if why == "" {
			why = checkName(part, mapped)
		}
	}
	if why == "" {
		return nil
	}
	return backends.Errorf(backends.Invalid, op, key, "invalid name for a file on a share: %s", why)
}

func checkName(name string, mapped bool) string {
	for _, r := range name {
		switch {
		case r == 0:
			return "it contains a zero byte"
		case r == '\\':
			return `a "\" separates directories in SMB`
		case !mapped && (r < ' ' || strings.ContainsRune(reserved, r)):
			return fmt.Sprintf("SMB does not allow %q in names; remove ?mapchars=off to map it as Linux and macOS do", r)
		case mapped && r >= 0xF001 && r <= 0xF029:
			return fmt.Sprintf("the character %U is reserved for mapping in names on shares", r)
		}
	}
	switch last := name[len(name)-1]; {
	case !mapped && (last == '.' || last == ' '):
		return "SMB does not allow names that end in a dot or a space; remove ?mapchars=off to map them as Linux and macOS do"
	case len(utf16.Encode([]rune(name))) > 255:
		return "at most 255 characters are allowed between two slashes"
	case strings.HasPrefix(name, fileshare.Temporary):
		return fmt.Sprintf("the names %s… are reserved for stager", fileshare.Temporary)
	}
	return ""
}
