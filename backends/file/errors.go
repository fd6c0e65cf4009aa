package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/sys"
)

// Temporary is the name prefix of files that are still being written.
const Temporary = fileshare.Temporary

// private is a directory reserved for stager; it contains no data.
const private = ".stager"

// kinds maps errors of the operating system.
var kinds = []struct {
	kind  backends.Kind
	errno []syscall.Errno
	hint  string // a remedy, if the errno text does not suffice
}{
	{backends.NotExist, []syscall.Errno{syscall.ENOENT}, ""},
	{backends.Exist, []syscall.Errno{syscall.EEXIST}, ""},
	{backends.Permission, []syscall.Errno{syscall.EACCES, syscall.EPERM}, ""},
	{backends.Permission, []syscall.Errno{syscall.EROFS}, ""},
	{backends.NoSpace, []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, ""},
	{backends.Unavailable, []syscall.Errno{
		syscall.ESTALE, syscall.EIO, syscall.ETIMEDOUT, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY,
		syscall.ENOTCONN, syscall.EHOSTDOWN, sys.RemoteIO, syscall.EMFILE, syscall.ENFILE,
	}, ""},
	{backends.Invalid, []syscall.Errno{syscall.ENOTDIR}, "a parent of the key is a file"},
	{backends.Invalid, []syscall.Errno{syscall.EISDIR}, "a directory has this name"},
	{backends.Invalid, []syscall.Errno{syscall.ENAMETOOLONG}, "file systems allow at most 255 bytes between two slashes"},
	{backends.Invalid, []syscall.Errno{syscall.EINVAL, syscall.EILSEQ}, "the file system does not allow this name"},
	{backends.Invalid, []syscall.Errno{syscall.ELOOP}, "symbolic links form a cycle"},
}

// classify converts an operating system error to a *backends.Error.
func classify(op, key string, err error) error {
	var done *backends.Error
	var local *backends.LocalError // an error of the source, which may be a disk too
	if err == nil || errors.As(err, &done) || errors.As(err, &local) {
		return err
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		for _, k := range kinds {
			for _, e := range k.errno {
				if e != errno {
					continue
				}
				// backends.Error adds the key, so only the cause of a PathError is used.
				if k.hint != "" {
					return backends.Errorf(k.kind, op, key, "%s: %w", k.hint, errno)
				}
				return backends.Errorf(k.kind, op, key, "%w", errno)
			}
		}
	}
	if escapes(err) {
		return backends.Errorf(backends.Permission, op, key,
			"it is a symbolic link that points outside the directory; use the target directory as a separate store")
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.KindOf(err), Err: err}
}

// escapes reports whether os.Root refused to leave the directory. It has no error value for this,
// so the text is compared; a test verifies it.
func escapes(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe) && strings.Contains(pe.Err.Error(), "path escapes from parent")
}

// vanished reports whether err means that a name does not exist or is a loop of links.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// missing is classify for lookups: there is no file below another file, nor under a name that is
// too long.
func missing(op, key string, err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
		return backends.Errorf(backends.NotExist, op, key, "%w", syscall.ENOENT)
	}
	return classify(op, key, err)
}

// checkKey returns an error for keys that are not a valid object path.
func checkKey(op, key string) error {
	why := ""
	switch {
	case !fs.ValidPath(key) || key == ".":
		why = `it must be a path without empty, "." and ".." parts, in UTF-8`
	case strings.ContainsRune(key, 0):
		why = "it contains a zero byte"
	case hidden(key):
		why = fmt.Sprintf("the names %s and %s… are reserved for stager", private, Temporary)
	default:
		return nil
	}
	return backends.Errorf(backends.Invalid, op, key, "invalid file name: %s", why)
}

// hidden reports whether key is reserved for stager.
func hidden(key string) bool {
	return key == private || strings.HasPrefix(key, private+"/") || strings.HasPrefix(path.Base(key), Temporary)
}
