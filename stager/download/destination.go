package download

import (
	"io"
	"io/fs"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// destination is the directory for the files of an archive.
type destination struct {
	dir   string // its path, for the length limit
	to    *disk.Filling
	admit func(name string, size int64) error // called before each file
}

var _ unpack.Into = (*destination)(nil)

// Check implements [unpack.Into].
func (l *destination) Check(name string) error { return plan.CheckPath(l.dir + "/" + name) }

// Dir implements [unpack.Into].
func (l *destination) Dir(name string) error { return l.local(l.to.Mkdir(name)) }

// File implements [unpack.Into].
func (l *destination) File(name string, size int64, executable bool) (io.WriteCloser, error) {
	if err := l.admit(name, size); err != nil {
		return nil, err
	}
	file, err := l.to.Create(name, size, executable)
	if err != nil {
		return nil, l.local(err)
	}
	return &destinationFile{file, l}, nil
}

// local wraps errors of the disk, except those that have a meaning for an Into, and refusals of a
// directory by [disk.Filling.Made], which are not the disk's.
func (l *destination) local(err error) error {
	if err == nil || err == fs.ErrExist || err == fs.ErrInvalid { //nolint:errorlint // these very ones
		return err
	}
	if isKind(err, backends.Invalid, backends.NoSpace) {
		return err
	}
	return local(l.dir, err)
}

type destinationFile struct {
	*disk.FillingFile
	of *destination
}

func (f *destinationFile) Write(p []byte) (int, error) {
	n, err := f.FillingFile.Write(p)
	return n, f.of.local(err)
}

func (f *destinationFile) Close() error { return f.of.local(f.FillingFile.Close()) }
