package git

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/stager-dev/stager/backends"
)

// objectKind is the kind of an object, as packs number it.
type objectKind byte

const (
	commitObject objectKind = 1
	treeObject   objectKind = 2
	blobObject   objectKind = 3
	tagObject    objectKind = 4
)

var kindNames = map[objectKind]string{commitObject: "commit", treeObject: "tree", blobObject: "blob", tagObject: "tag"}

// object is where an object lies in the file.
type object struct {
	kind objectKind
	at   int64
	size int64
	sum  [sha256.Size]byte // of its contents
}

// objects are objects of a repository, by their binary hash. Their contents are in a temporary file.
type objects struct {
	file    *os.File
	newHash func() hash.Hash
	maxSize int64
	by      map[string]object

	out     *bufio.Writer // to the file
	size    int64         // of all contents
	flushed int64         // how much of them the file has
}

// newObjects makes an empty set. Its file has no name, so that it ends with the process.
func newObjects(newHash func() hash.Hash, maxSize int64) (*objects, error) {
	file, err := os.CreateTemp("", "stager-git-")
	if err == nil {
		if err = os.Remove(file.Name()); err != nil {
			_ = file.Close() // it is empty
		}
	}
	if err != nil {
		return nil, &backends.LocalError{Err: fmt.Errorf("cannot make a temporary file for the repository, set TMPDIR to a writable directory: %w", err)}
	}
	return &objects{file: file, newHash: newHash, maxSize: maxSize, by: make(map[string]object), out: bufio.NewWriterSize(file, 256<<10)}, nil
}

// section returns the contents of an object.
func (o *objects) section(obj object) (*io.SectionReader, error) {
	if end := obj.at + obj.size; end > o.flushed {
		if err := o.flush(); err != nil {
			return nil, err
		}
	}
	return io.NewSectionReader(o.file, obj.at, obj.size), nil
}

func (o *objects) flush() error {
	if err := o.out.Flush(); err != nil {
		return unwritable(err)
	}
	o.flushed = o.size
	return nil
}

func unwritable(err error) error {
	return &backends.LocalError{Err: fmt.Errorf("cannot write the temporary file of the repository, set TMPDIR to a directory with more room: %w", err)}
}

func unreadable(err error) error {
	return &backends.LocalError{Err: fmt.Errorf("cannot read the temporary file of the repository: %w", err)}
}

// maxInMemory bounds objects that are read as a whole: trees, commits, tags and targets of links.
const maxInMemory = 64 << 20

// bytes returns the contents of a small object.
func (o *objects) bytes(obj object) ([]byte, error) {
	if obj.size > maxInMemory {
		return nil, corrupt("a %s of %d bytes", kindNames[obj.kind], obj.size)
	}
	from, err := o.section(obj)
	if err != nil {
		return nil, err
	}
	data := make([]byte, obj.size)
	if _, err := io.ReadFull(from, data); err != nil {
		return nil, unreadable(err)
	}
	return data, nil
}

// addition writes one object. Its errors are those of the file.
type addition struct {
	o   *objects
	obj object
	id  hash.Hash
	sum hash.Hash
	n   int64
}

// begin starts to add an object of a known size.
func (o *objects) begin(kind objectKind, size int64) (*addition, error) {
	if size < 0 || size > o.maxSize-o.size {
		return nil, backends.Errorf(backends.Unsupported, "open", "", "the commit is larger than %s: set ?max-size=, or keep large files in another store", backends.Size(o.maxSize))
	}
	a := &addition{o: o, obj: object{kind: kind, at: o.size, size: size}, id: o.newHash(), sum: sha256.New()}
	fmt.Fprintf(a.id, "%s %d\x00", kindNames[kind], size)
	return a, nil
}

// errTooLong reports more bytes than an object has.
var errTooLong = errors.New("an object is longer than its size")

// Write implements io.Writer.
func (a *addition) Write(p []byte) (int, error) {
	if int64(len(p)) > a.obj.size-a.n {
		return 0, errTooLong
	}
	a.id.Write(p)
	a.sum.Write(p)
	n, err := a.o.out.Write(p)
	a.n += int64(n)
	a.o.size += int64(n)
	if err != nil {
		err = unwritable(err)
	}
	return n, err
}

// end adds the object.
func (a *addition) end() (object, error) {
	if a.n != a.obj.size {
		return object{}, corrupt("an object of %d bytes has %d", a.obj.size, a.n)
	}
	a.sum.Sum(a.obj.sum[:0])
	a.o.by[string(a.id.Sum(nil))] = a.obj
	return a.obj, nil
}
