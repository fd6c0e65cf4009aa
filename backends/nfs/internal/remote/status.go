package remote

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
)

// Status is an error code of the protocol. Version 3 uses a subset of the codes of version 4.
type Status uint32

// Status codes that the client acts upon.
const (
	OK           = Status(nfsv4.NFS4_OK)
	Perm         = Status(nfsv4.NFS4ERR_PERM)
	NoEnt        = Status(nfsv4.NFS4ERR_NOENT)
	IO           = Status(nfsv4.NFS4ERR_IO)
	Access       = Status(nfsv4.NFS4ERR_ACCESS)
	Exist        = Status(nfsv4.NFS4ERR_EXIST)
	NotDir       = Status(nfsv4.NFS4ERR_NOTDIR)
	IsDir        = Status(nfsv4.NFS4ERR_ISDIR)
	Inval        = Status(nfsv4.NFS4ERR_INVAL)
	FBig         = Status(nfsv4.NFS4ERR_FBIG)
	NoSpc        = Status(nfsv4.NFS4ERR_NOSPC)
	ROFS         = Status(nfsv4.NFS4ERR_ROFS)
	NameTooLong  = Status(nfsv4.NFS4ERR_NAMETOOLONG)
	NotEmpty     = Status(nfsv4.NFS4ERR_NOTEMPTY)
	DQuot        = Status(nfsv4.NFS4ERR_DQUOT)
	Stale        = Status(nfsv4.NFS4ERR_STALE)
	BadHandle    = Status(nfsv4.NFS4ERR_BADHANDLE)
	BadCookie    = Status(nfsv4.NFS4ERR_BAD_COOKIE)
	NotSupp      = Status(nfsv4.NFS4ERR_NOTSUPP)
	TooSmall     = Status(nfsv4.NFS4ERR_TOOSMALL)
	ServerFault  = Status(nfsv4.NFS4ERR_SERVERFAULT)
	Delay        = Status(nfsv4.NFS4ERR_DELAY)
	Grace        = Status(nfsv4.NFS4ERR_GRACE)
	FHExpired    = Status(nfsv4.NFS4ERR_FHEXPIRED)
	WrongSec     = Status(nfsv4.NFS4ERR_WRONGSEC)
	MinorVersion = Status(nfsv4.NFS4ERR_MINOR_VERS_MISMATCH)
	SymlinkThere = Status(nfsv4.NFS4ERR_SYMLINK)
	BadChar      = Status(nfsv4.NFS4ERR_BADCHAR)
	BadName      = Status(nfsv4.NFS4ERR_BADNAME)
	NotSame      = Status(nfsv4.NFS4ERR_NOT_SAME)
	FileOpen     = Status(nfsv4.NFS4ERR_FILE_OPEN)
	ShareDenied  = Status(nfsv4.NFS4ERR_SHARE_DENIED)
	Locked       = Status(nfsv4.NFS4ERR_LOCKED)
	Resource     = Status(nfsv4.NFS4ERR_RESOURCE)
	ClientInUse  = Status(nfsv4.NFS4ERR_CLID_INUSE)
	WrongType    = Status(nfsv4.NFS4ERR_WRONG_TYPE)
)

// Error is an error status that a server returned.
type Error struct {
	Status Status
	Op     string // operation, as the protocol names it
}

func (e *Error) Error() string {
	name, ok := nfsv4.Nfsstat4_name[nfsv4.Nfsstat4(e.Status)]
	if !ok {
		name = fmt.Sprintf("status %d", e.Status)
	}
	return e.Op + " returned " + name
}

// Is recognises the errors of package fs that callers check for.
func (e *Error) Is(target error) bool {
	return target == fs.ErrNotExist && e.Status == NoEnt || target == fs.ErrExist && e.Status == Exist
}

// StatusOf returns the status in the chain of err, or OK if there is none.
func StatusOf(err error) Status {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return OK
}

// ErrType reports that a name has another type.
var ErrType = errors.New("wrong file type")

// ErrReplaced reports that a file got its name, and was replaced before its attributes were read.
var ErrReplaced = errors.New("the file was replaced as soon as it was there")

// Replaced adds ErrReplaced to an error that says that a file is gone, and returns others as they are.
func Replaced(err error) error {
	switch StatusOf(err) {
	case Stale, FHExpired, BadHandle:
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	}
	return err
}
