package unpack

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Format is a kind of archive.
type Format string

// The formats that are unpacked.
const (
	Tar     Format = "tar"
	TarGzip Format = "tar.gz"
	TarZstd Format = "tar.zst"
	Zip     Format = "zip"
)

// endings are how keys of archives end, the longer of two that fit first.
var endings = []struct {
	end    string
	format Format
}{{".tar.gz", TarGzip}, {".tgz", TarGzip}, {".tar.zst", TarZstd}, {".tar", Tar}, {".zip", Zip}}

// Dir tells by the end of a key which format of archive it is, and the directory that it
// becomes: its key without that. The format is "" when it is none, or has no name but the
// ending.
func Dir(key string) (directory string, f Format) {
	for _, e := range endings {
		if directory, ok := strings.CutSuffix(key, e.end); ok && directory != "" && !strings.HasSuffix(directory, "/") {
			return directory, e.format
		}
	}
	return "", ""
}

// Into takes what is in an archive, one entry after the other. Its errors end the work
// and are returned as they are, but for two of File and Dir: fs.ErrExist says that the
// name is taken by an entry of another kind, or by a file, and fs.ErrInvalid that a part
// of the way to it is no directory.
type Into interface {
	// Check tells why a name cannot be that of an entry. No other name comes to Dir and
	// File.
	Check(name string) error
	// Dir makes a directory, and those on the way to it. One that is there is no error.
	Dir(name string) error
	// File begins a file of that size, and makes the directories on the way to it. The next
	// call comes after Close.
	File(name string, size int64, executable bool) (io.WriteCloser, error)
}

// Contents are what an archive held.
type Contents struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Refused says that an archive holds what is never put on a disk.
type Refused struct {
	Entry string // "": it is the archive itself
	Err   error
}

func (e *Refused) Error() string {
	if e.Entry == "" {
		return "the archive is not unpacked: " + e.Err.Error()
	}
	return fmt.Sprintf("the archive is not unpacked: its entry %q is refused: %v", shorten(e.Entry), e.Err)
}

// Unwrap is the reason.
func (e *Refused) Unwrap() error { return e.Err }

func refuse(entry, format string, args ...any) error {
	return &Refused{entry, fmt.Errorf(format, args...)}
}

// shorten keeps a sentence readable.
func shorten(name string) string {
	if len(name) > 300 {
		return name[:200] + "…" + name[len(name)-50:]
	}
	return name
}

// Damaged says that an archive cannot be read.
type Damaged struct{ Err error }

func (e *Damaged) Error() string {
	return fmt.Sprintf("the archive is damaged, or not what its name says: %v", e.Err)
}

// Unwrap is what was found.
func (e *Damaged) Unwrap() error { return e.Err }

func damaged(format string, args ...any) error { return &Damaged{fmt.Errorf(format, args...)} }

// Archive reads an archive of size bytes to its last byte, in order, and puts what is in
// it into into. at is the same bytes at any place; of a zip its directory, which stands
// at the end, is read by it first. Errors of both are returned as they are.
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
		err = src.err // whatever a format makes of that
	}
	return u.Contents, err
}

// source remembers an error of its reader, and how far it was read.
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

// unpacker puts entries where they belong, after a look at them.
type unpacker struct {
	Contents
	into Into
	buf  []byte
}

// entry is one of any format.
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
		return refuse(e.name, "it begins with a slash, so it is no path below a directory")
	}
	name, directory := strings.CutSuffix(e.name, "/")
	// "tar -C directory ." writes ./ in front of all names, and the directory itself.
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
		return refuse(e.name, "it is %s, and only files and directories are unpacked; pack it without", kind(e.mode))
	}
	if e.size < 0 {
		return damaged("its entry %q has %d bytes, which cannot be", shorten(e.name), e.size)
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
		_ = from.Close() // it was read to its end, or its error counts
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

// copy moves the bytes of an entry, which are as many as it said.
func (u *unpacker) copy(to io.Writer, from io.Reader, e entry) error {
	if u.buf == nil {
		u.buf = make([]byte, 128<<10)
	}
	for left := e.size; ; {
		n, err := from.Read(u.buf)
		if left -= int64(n); left < 0 {
			return damaged("its entry %q is longer than the %d bytes that it says", shorten(e.name), e.size)
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

// unreadable is what a format says of an entry.
func unreadable(name string, err error) error {
	switch {
	case errors.Is(err, errOrder):
		return refuse(name, "%w; pack it anew", err)
	case errors.Is(err, zip.ErrAlgorithm):
		return refuse(name, "it is compressed in a way that is not known; pack it by deflate, or without compression")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it ends within its entry %q", shorten(name))
	}
	return damaged("its entry %q: %w", shorten(name), err)
}

// judge says in words what an Into has against a name.
func (u *unpacker) judge(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return &Refused{name, errors.New("it is there twice, or as a file and as a directory")}
	case errors.Is(err, fs.ErrInvalid):
		return &Refused{name, errors.New("a part of the way to it is a file")}
	}
	return err
}

// kind is what an entry is if neither a file nor a directory.
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
	return "of a kind of its own"
}
