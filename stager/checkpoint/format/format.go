package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Verdict is the result of checking the structure of a file.
type Verdict int

// The verdicts.
const (
	Unknown    Verdict = iota // no reader knows the format, or the file cannot be checked
	Whole                     // the file ends where its format requires
	Incomplete                // the file is truncated
)

func (v Verdict) String() string {
	switch v {
	case Whole:
		return "whole"
	case Incomplete:
		return "incomplete"
	}
	return "unknown"
}

// Result is the verdict on one file.
type Result struct {
	Verdict Verdict
	Kind    string // the format, such as "zip"; empty when no reader knows the file
	Reason  string // why the file is incomplete, as the end of a sentence about it
}

// The limits of reads from one file.
const (
	headLimit   = 512      // bytes that identify the format
	headerLimit = 16 << 20 // maximum size of a header, directory or index
)

// weights are the extensions of files that are never empty once they are written.
var weights = []string{".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl", ".npz", ".npy", ".distcp", ".h5", ".keras", ".parquet"}

// magics are the formats with known first bytes, and their readers.
var magics = []struct {
	magic string
	kind  string
	exts  []string // a file with such a name that is shorter than magic is truncated
	judge func(input) (Result, error)
}{
	{"PK\x03\x04", "zip", []string{".pt", ".pth", ".ckpt", ".bin", ".npz", ".keras", ".zip", ".distcp"}, judgeZip},
	{"\x93NUMPY", "npy", []string{".npy"}, judgeNPY},
	{"\x89HDF\r\n\x1a\n", "hdf5", []string{".h5", ".hdf5"}, judgeHDF5},
	{"PAR1", "parquet", []string{".parquet"}, judgeParquet},
	{legacyMagic, "torch legacy", nil, judgeLegacy},
}

// Judge returns the verdict on a file, based on its name, content and size. The error is a read
// error, or io.ErrUnexpectedEOF for a file that is shorter than size.
func Judge(name string, r io.ReaderAt, size int64) (Result, error) {
	base := path.Base(name)
	ext := path.Ext(base)
	if size == 0 {
		if slices.Contains(weights, ext) || strings.HasSuffix(base, ".metadata") {
			return Result{Incomplete, "", "is empty"}, nil
		}
		return Result{}, nil
	}
	in := input{name: base, r: r, size: size}
	head, err := in.read(0, min(size, headLimit))
	if err != nil {
		return Result{}, err
	}
	in.head = head
	if ext == ".safetensors" {
		return named("safetensors")(judgeSafetensors(in))
	}
	for _, m := range magics {
		switch {
		case bytes.HasPrefix(head, []byte(m.magic)):
			return named(m.kind)(m.judge(in))
		case len(head) < len(m.magic) && strings.HasPrefix(m.magic, string(head)) && slices.Contains(m.exts, ext):
			return in.incomplete("breaks off within its first bytes").of(m.kind), nil
		}
	}
	switch {
	case ext == ".index":
		return named("tensorflow index")(judgeTable(in))
	case ext == ".pkl", ext == ".metadata", ext == ".bin", ext == ".pt", ext == ".pth":
		return named("pickle")(judgePickle(in))
	case ext == ".json":
		return named("json")(judgeJSON(in))
	}
	return Result{}, nil
}

func named(kind string) func(Result, error) (Result, error) {
	return func(r Result, err error) (Result, error) { return r.of(kind), err }
}

func (r Result) of(kind string) Result {
	r.Kind = kind
	return r
}

// input is a file to check.
type input struct {
	name string
	r    io.ReaderAt
	size int64
	head []byte
}

// read returns n bytes from off on. The caller must check both against size and a limit.
func (in input) read(off, n int64) ([]byte, error) {
	p := make([]byte, n)
	got, err := in.r.ReadAt(p, off)
	if int64(got) == n {
		return p, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

func (in input) incomplete(format string, args ...any) Result {
	return Result{Verdict: Incomplete, Reason: fmt.Sprintf(format, args...)}
}

var (
	whole   = Result{Verdict: Whole}
	unknown = Result{}
)
