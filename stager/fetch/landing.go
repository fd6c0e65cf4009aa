package fetch

import (
	"io"
	"io/fs"

	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// landing is where the files of an archive come down.
type landing struct {
	folder string // what they lie in, for the length of paths
	to     *disk.Filling
	admit  func(name string, size int64) error // asked before each file
}

var _ unpack.Into = (*landing)(nil)

// Check implements [unpack.Into].
func (l *landing) Check(name string) error { return plan.CheckPath(l.folder + "/" + name) }

// Folder implements [unpack.Into].
func (l *landing) Folder(name string) error { return l.local(l.to.Mkdir(name)) }

// File implements [unpack.Into].
func (l *landing) File(name string, size int64, executable bool) (io.WriteCloser, error) {
	if err := l.admit(name, size); err != nil {
		return nil, err
	}
	file, err := l.to.Create(name, size, executable)
	if err != nil {
		return nil, l.local(err)
	}
	return &landingFile{file, l}, nil
}

// local leaves alone what an Into says by its errors.
func (l *landing) local(err error) error {
	if err == nil || err == fs.ErrExist || err == fs.ErrInvalid { //nolint:errorlint // these very ones
		return err
	}
	return local(l.folder, err)
}

type landingFile struct {
	*disk.FillingFile
	of *landing
}

func (f *landingFile) Write(p []byte) (int, error) {
	n, err := f.FillingFile.Write(p)
	return n, f.of.local(err)
}

func (f *landingFile) Close() error { return f.of.local(f.FillingFile.Close()) }
