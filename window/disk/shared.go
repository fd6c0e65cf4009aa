package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// A path may pass through directories in which other users can write: a volume of several
// containers, a scratch directory of a machine. There another user can replace a directory by a
// link at any time, and so make stager write where only stager can. So a path is trusted up to the
// first such directory. Everything below is opened relative to that, by os.Root: a link that leads
// out of it is an error.

// OutsideError is returned if a link in a shared directory leads out of it.
type OutsideError struct {
	Path, Shared string
	Err          error
}

func (e *OutsideError) Error() string {
	return fmt.Sprintf("%s is a symbolic link that points outside %s, where others may write; use the target directory itself, or remove the link (%v)", e.Path, e.Shared, e.Err)
}

func (e *OutsideError) Unwrap() error { return e.Err }

// mostLinks is the maximum number of links that are followed in a path, as in the kernel.
const mostLinks = 40

// OpenRoot opens a directory as a root for all operations in it. A link in the path that other
// users could have made must not lead out of the directory in which they can write. If one does,
// the error is an *OutsideError.
func OpenRoot(path string) (*os.Root, error) { return openRoot(path, false) }

// MakeRoot is OpenRoot, and creates the directory and its parents if needed.
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
	defer root.Close() // only needed to open below
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

// outside adds the full path to an error about a path below base. It returns an *OutsideError for a
// link that leads out of base; package os has no exported error for that.
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

// trusted splits a path where it enters a directory in which other users can write, or one that
// does not exist yet. No other user can change what base refers to.
func trusted(path string) (base, rest string, err error) {
	for links := 0; ; {
		base, rest = "/", strings.TrimPrefix(path, "/")
		for {
			info, err := os.Stat(base) // not a link, or one of the kernel's
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
				return base, rest, nil // the caller handles what is there or missing
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

// ofKernel reports whether links in a directory are made by the kernel. Those of /proc, such as
// /proc/self/fd/3 and /proc/1/root, lead to directories that may have no path.
func ofKernel(dir string) bool {
	on, err := sys.FileSystemAt(dir)
	return err == nil && on.Name == "proc"
}

// isShared reports whether other users can replace the entries of a directory. With the sticky bit
// they can replace only their own.
func isShared(dir fs.FileInfo) bool {
	return dir.Mode().Perm()&0o022 != 0 && dir.Mode()&fs.ModeSticky == 0
}
