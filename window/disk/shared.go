package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A path may lead through directories where others may write: a volume of several
// containers, a scratch directory of a machine. There somebody can put a link in the place
// of a directory at any time, and have stager write where only stager can. So a path is
// trusted as far as the first such directory, and what lies below that is opened from
// there, by os.Root: a link that leads out of it is an error.

// OutsideError says that a link in a shared directory leads out of it.
type OutsideError struct {
	Path, Shared string
	Err          error
}

func (e *OutsideError) Error() string {
	return fmt.Sprintf("%s leads out of %s, where others may write, by a symbolic link; name the directory that it leads to, or remove the link (%v)", e.Path, e.Shared, e.Err)
}

func (e *OutsideError) Unwrap() error { return e.Err }

// ExitCode is that of a path that must be written otherwise.
func (e *OutsideError) ExitCode() int { return 78 }

// mostLinks are followed on the way to a directory, as by the kernel.
const mostLinks = 40

// OpenRoot opens a directory, for all that happens in it. Links on the way that others
// could have made lead nowhere outside the directory where those may write: then the error
// is an *OutsideError.
func OpenRoot(path string) (*os.Root, error) { return openRoot(path, false) }

// MakeRoot is OpenRoot, and makes the directory, and those on the way, if need be.
func MakeRoot(path string) (*os.Root, error) { return openRoot(path, true) }

func openRoot(path string, create bool) (*os.Root, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	base, rest, err := trusted(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(base)
	if err != nil || rest == "." {
		return root, err
	}
	defer root.Close() // opened for what is below it
	below, err := root.OpenRoot(rest)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = root.MkdirAll(rest, 0o755); err == nil {
			below, err = root.OpenRoot(rest)
		}
	}
	if err != nil {
		return nil, outside(path, base, rest, err)
	}
	return below, nil
}

// outside names the path in an error of what lies below base, and says so where a link
// leads out of it, which package os has no error for.
func outside(path, base, rest string, err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return err
	}
	if strings.Contains(at.Err.Error(), "escapes") {
		return &OutsideError{path, base, at.Err}
	}
	return &fs.PathError{Op: at.Op, Path: filepath.Join(base, rest), Err: at.Err}
}

// trusted divides a path where it enters a directory in which others may write, or what is
// not there yet: nobody else can change what the first part names.
func trusted(path string) (base, rest string, err error) {
	for links := 0; ; {
		base, rest = "/", strings.TrimPrefix(path, "/")
		for {
			info, err := os.Stat(base) // no link, or one of the kernel's
			if err != nil {
				return "", "", err
			}
			if isShared(info) || rest == "" {
				return base, filepath.Clean(rest), nil
			}
			name, after, _ := strings.Cut(rest, "/")
			next := filepath.Join(base, name)
			info, err = os.Lstat(next)
			if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeDir && info.Mode().Type() != fs.ModeSymlink {
				return base, rest, nil // what is there, or is not, is the opener's to find
			}
			if err != nil {
				return "", "", err
			}
			if info.Mode().Type() == fs.ModeSymlink && !ofKernel(base) {
				if links++; links > mostLinks {
					return "", "", &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
				}
				to, err := os.Readlink(next)
				if err != nil {
					return "", "", err
				}
				if !filepath.IsAbs(to) {
					to = filepath.Join(base, to)
				}
				path = filepath.Join(to, after)
				break
			}
			base, rest = next, after
		}
	}
}

// ofKernel reports whether links in a directory are made by the kernel. Those of /proc, such
// as /proc/self/fd/3 and /proc/1/root, lead to directories that may have no path.
func ofKernel(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

// isShared reports whether others may put something else in the place of what is in a
// directory. With the sticky bit they may do so only with what is theirs.
func isShared(dir fs.FileInfo) bool {
	return dir.Mode().Perm()&0o022 != 0 && dir.Mode()&fs.ModeSticky == 0
}
