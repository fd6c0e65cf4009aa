package bench

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Data is what is moved: a directory with one large file, and one with many small ones.
type Data struct {
	One, Many       string // the directories
	Size            int64  // of the large file
	Files, FileSize int64  // of the small ones
}

// in is the same below dir.
func (d Data) in(dir string) Data {
	d.One, d.Many = filepath.Join(dir, "one"), filepath.Join(dir, "many")
	return d
}

// set is one of the directories of Data.
type set struct {
	name, dir    string
	what         string // for people
	bytes, files int64  // files is 0 for a large one
}

func (d Data) one() set { return set{"one", d.One, sizeOf(d.Size), d.Size, 0} }

func (d Data) many() set {
	return set{"many", d.Many, fmt.Sprintf("%d × %s", d.Files, sizeOf(d.FileSize)), d.Files * d.FileSize, d.Files}
}

// MakeData writes the files, of bytes that nothing compresses.
func MakeData(dir string, size, files, fileSize int64) (Data, error) {
	d := Data{Size: size, Files: files, FileSize: fileSize}.in(dir)
	random := rand.NewChaCha8([32]byte{1})
	fill := func(path string, n int64) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(random, n), make([]byte, 256<<10))
		return firstOf(err, f.Close())
	}
	for _, directory := range []string{d.One, d.Many} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return d, err
		}
	}
	if err := fill(filepath.Join(d.One, "one.bin"), size); err != nil {
		return d, err
	}
	for i := range files {
		if err := fill(filepath.Join(d.Many, fmt.Sprintf("%05d.bin", i)), fileSize); err != nil {
			return d, err
		}
	}
	return d, nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// equal compares two directories without directories in them. Hidden names do not count: they
// are what clients remember.
func equal(got, want string) error {
	names := func(dir string) (names []string, err error) {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				names = append(names, e.Name())
			}
		}
		return names, err
	}
	here, err1 := names(got)
	there, err2 := names(want)
	if err := firstOf(err1, err2); err != nil {
		return err
	}
	if len(here) != len(there) {
		return fmt.Errorf("%s has %d files, and %d were wanted", got, len(here), len(there))
	}
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for _, name := range there {
		if err := equalFiles(filepath.Join(got, name), filepath.Join(want, name), a, b); err != nil {
			return err
		}
	}
	return nil
}

func equalFiles(got, want string, a, b []byte) error {
	f, err := os.Open(got)
	if err != nil {
		return err
	}
	defer f.Close()
	g, err := os.Open(want)
	if err != nil {
		return err
	}
	defer g.Close()
	for at := int64(0); ; {
		n, err1 := io.ReadFull(f, a)
		m, err2 := io.ReadFull(g, b)
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			return &fs.PathError{Op: "compare", Path: got, Err: fmt.Errorf("it differs from what was sent behind byte %d", at)}
		}
		at += int64(n)
		if err1 != nil || err2 != nil {
			if isEnd(err1) && isEnd(err2) {
				return nil
			}
			return firstOf(err1, err2)
		}
	}
}

func isEnd(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF } //nolint:errorlint // ReadFull says these
