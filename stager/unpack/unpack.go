package unpack

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Format is an archive format.
type Format string

// The supported formats.
const (
	Tar     Format = "tar"
	TarGzip Format = "tar.gz"
	TarZstd Format = "tar.zst"
	Zip     Format = "zip"
)

// endings are the suffixes of archive keys. Of two that match, the longer comes first.
var endings = []struct {
	end    string
	format Format
}{{".tar.gz", TarGzip}, {".tgz", TarGzip}, {".tar.zst", TarZstd}, {".tar", Tar}, {".zip", Zip}}

// Dir returns the archive format of a key, by its suffix, and the directory that the archive
// becomes: the key without the suffix. The format is "" if there is no such suffix, or no name
// before it.
func Dir(key string) (directory string, f Format) {
	for _, e := range endings {
		if directory, ok := strings.CutSuffix(key, e.end); ok && directory != "" && !strings.HasSuffix(directory, "/") {
			return directory, e.format
		}
	}
	return "", ""
}

// Into receives the contents of an archive, one entry after the other. Its errors end the work and
// are returned unchanged, except two of File and Dir: fs.ErrExist means that the name is used by an
// entry of another kind, or by a file, and fs.ErrInvalid that an element of its path is not a
// directory.
type Into interface {
	// Check returns an error if an entry cannot have this name. Dir and File are called only with
	// names that passed Check.
	Check(name string) error
	// Dir creates a directory and its parents. It is no error if the directory exists.
	Dir(name string) error
	// File creates a file of the given size, and its parent directories. The next call follows
	// after Close.
	File(name string, size int64, executable bool) (io.WriteCloser, error)
}

// Contents describes what an archive contained.
type Contents struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Refused reports that an archive has contents that are never written to disk.
type Refused struct {
	Entry string // "": the archive itself
	Err   error
}

func (e *Refused) Error() string {
	if e.Entry == "" {
		return "the archive is not unpacked: " + e.Err.Error()
	}
	return fmt.Sprintf("the archive is not unpacked: its entry %q is refused: %v", shorten(e.Entry), e.Err)
}

// Unwrap returns the reason.
func (e *Refused) Unwrap() error { return e.Err }

func refuse(entry, format string, args ...any) error {
	return &Refused{entry, fmt.Errorf(format, args...)}
}

// shorten keeps messages readable.
func shorten(name string) string {
	if len(name) > 300 {
		return name[:200] + "…" + name[len(name)-50:]
	}
	return name
}

// Damaged reports that an archive cannot be read.
type Damaged struct{ Err error }

func (e *Damaged) Error() string {
	return fmt.Sprintf("the archive is damaged, or has the wrong extension: %v", e.Err)
}

// Unwrap returns the cause.
func (e *Damaged) Unwrap() error { return e.Err }

func damaged(format string, args ...any) error { return &Damaged{fmt.Errorf(format, args...)} }

// Archive reads an archive of size bytes to its last byte, in order, and passes its contents to
// into. at provides random access to the same bytes; it is used to read the directory of a zip,
// which is at the end, first. Errors of in and at are returned unchanged.
func Archive(f Format, in io.Reader, at io.ReaderAt, size int64, into Into) (Contents, error) {
	src := &source{Reader: in}
	u := &unpacker{into: into}
	var err error
	if f == Zip {
		err = u.zip(at, src, size)
	} else {
		err = u.tar(f, src)
	}
	if src.err != nil {
		err = src.err // it takes precedence over the format's error
	}
	return u.Contents, err
}

// source remembers an error of its reader, and the number of bytes read.
type source struct {
	io.Reader
	at  int64
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// unpacker checks entries and passes them to the Into.
type unpacker struct {
	Contents
	into Into
	buf  []byte
}

// entry is an entry of any format.
type entry struct {
	name string
	size int64
	mode fs.FileMode
	open func() (io.ReadCloser, error)
}

func (u *unpacker) put(e entry) error {
	switch {
	case e.name == "":
		return refuse("", "one of its entries has no name")
	case e.name[0] == '/':
		return refuse(e.name, "it starts with a slash; only relative paths are allowed")
	}
	name, directory := strings.CutSuffix(e.name, "/")
	// "tar -C directory ." prefixes all names with ./ and includes the directory itself.
	for strings.HasPrefix(name, "./") {
		name = name[2:]
	}
	directory = directory || e.mode.IsDir()
	if directory && (name == "." || name == "") {
		return nil
	}
	if err := u.into.Check(name); err != nil {
		return &Refused{e.name, err}
	}
	if directory {
		return u.judge(e.name, u.into.Dir(name))
	}
	if !e.mode.IsRegular() {
		return refuse(e.name, "it is %s, but only files and directories are supported; pack the archive without it", kind(e.mode))
	}
	if e.size < 0 {
		return damaged("its entry %q has an invalid size of %d bytes", shorten(e.name), e.size)
	}
	return u.file(name, e)
}

func (u *unpacker) file(name string, e entry) error {
	to, err := u.into.File(name, e.size, e.mode&0o111 != 0)
	if err != nil {
		return u.judge(e.name, err)
	}
	from, err := e.open()
	if err != nil {
		err = unreadable(e.name, err)
	} else {
		err = u.copy(to, from, e)
		_ = from.Close() // it was read to its end, or its error is returned
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	u.Files++
	u.Bytes += e.size
	return nil
}

// copy copies the bytes of an entry. Their number must match the entry's size.
func (u *unpacker) copy(to io.Writer, from io.Reader, e entry) error {
	if u.buf == nil {
		u.buf = make([]byte, 128<<10)
	}
	for left := e.size; ; {
		n, err := from.Read(u.buf)
		if left -= int64(n); left < 0 {
			return damaged("its entry %q is longer than its declared %d bytes", shorten(e.name), e.size)
		}
		if n > 0 {
			if _, err := to.Write(u.buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && left == 0:
			return nil
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			return unreadable(e.name, err)
		}
	}
}

// unreadable returns the error for an entry that its format cannot read.
func unreadable(name string, err error) error {
	switch {
	case errors.Is(err, errOrder):
		return refuse(name, "%w; pack it again", err)
	case errors.Is(err, zip.ErrAlgorithm):
		return refuse(name, "its compression method is not supported; use deflate, or no compression")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it ends within its entry %q", shorten(name))
	}
	return damaged("its entry %q: %w", shorten(name), err)
}

// judge explains why an Into rejects a name.
func (u *unpacker) judge(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return &Refused{name, errors.New("it exists twice, or as a file and as a directory")}
	case errors.Is(err, fs.ErrInvalid):
		return &Refused{name, errors.New("one of its parent directories is a file")}
	}
	return err
}

// kind names an entry that is neither a file nor a directory.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a special file"
}
