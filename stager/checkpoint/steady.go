package checkpoint

import (
	"os"

	"github.com/stager-dev/stager/backends/sys"
)

// steady checks that a file did not change since it was opened.
type steady struct {
	file   *os.File
	want   local
	watch  *writeWatch // nil: the kernel does not support it
	before int64       // change time
	silent bool        // the change time does not reflect writes through mappings
}

// beginSteady returns an error of kind Changed when the file is not in its listed state.
func beginSteady(file *os.File, want local) (*steady, error) {
	s := &steady{file: file, want: want}
	s.watch, _ = writes.watch(file) // without a watch, end compares the bytes
	on, err := sys.FileSystemOf(int(file.Fd()))
	s.silent = err == nil && on.MapsSilently
	info, err := file.Stat()
	if err == nil {
		s.before = describePlain(want.Path, info).CTime
		err = unchanged(file, want)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// end returns an error of kind Changed when a process wrote to the file meanwhile. again must
// read the file once more and report whether its bytes are those that were sent. end calls it
// only if the kernel cannot tell.
func (s *steady) end(again func() (bool, error)) error {
	if err := unchanged(s.file, s.want); err != nil {
		return err
	}
	written, known := s.watch.written()
	if written {
		return changed(s.want.Path)
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	_, blind := beingWritten(s.file)
	touched := describePlain(s.want.Path, info).CTime != s.before
	if !known && touched || s.silent && (!known || blind != nil) {
		same, err := again()
		if err != nil {
			return err
		}
		if !same {
			return changed(s.want.Path)
		}
		return unchanged(s.file, s.want)
	}
	return nil
}

func (s *steady) close() { s.watch.close() }
