package hub

import (
	"bytes"
	"crypto/sha1" // as Git does
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends/conformance"
)

// large is the size from which files are in LFS.
const large = 1 << 20

// repository is the files of a repository, by key.
type repository struct {
	files  map[string]*file
	listed map[string][]entry // by directory; forgotten when a file is added
}

func newRepository() *repository {
	return &repository{files: make(map[string]*file), listed: make(map[string][]entry)}
}

func (r *repository) add(key string, f *file) {
	r.files[key] = f
	clear(r.listed)
}

// addAll adds the files of a directory, which can be sought in.
func (r *repository) addAll(dir fs.FS) error {
	return fs.WalkDir(dir, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := newFile(func() (io.ReadSeekCloser, error) {
			opened, err := dir.Open(p)
			if err != nil {
				return nil, err
			}
			return opened.(io.ReadSeekCloser), nil
		})
		if err == nil {
			r.add(p, f)
		}
		return err
	})
}

// entry is what a listing says of a file or directory.
type entry struct {
	Type string   `json:"type"`
	Path string   `json:"path"`
	Size int64    `json:"size"`
	OID  string   `json:"oid"`
	LFS  *pointer `json:"lfs,omitempty"`
}

type pointer struct {
	OID  string `json:"oid"`
	Size int64  `json:"size"`
	Own  int64  `json:"pointerSize"`
}

// list returns what is below a directory, directories first, as the Hub does.
func (r *repository) list(dir string) []entry {
	if entries, ok := r.listed[dir]; ok {
		return entries
	}
	entries := []entry{}
	directories := make(map[string]bool)
	for key, f := range r.files {
		if dir != "" && !strings.HasPrefix(key, dir+"/") {
			continue
		}
		if parent := path.Dir(key); parent != "." && parent != dir {
			directories[parent] = true
		}
		one := entry{Type: "file", Path: key, Size: f.size, OID: f.hash}
		if f.isLarge() {
			one.OID, one.LFS = strings.Repeat("1", 40), &pointer{f.hash, f.size, 130}
		}
		entries = append(entries, one)
	}
	for directory := range directories {
		entries = append(entries, entry{Type: "directory", Path: directory, OID: strings.Repeat("0", 40)})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if c := strings.Compare(a.Type, b.Type); c != 0 {
			return c
		}
		return strings.Compare(b.Path, a.Path) // not the order of the keys
	})
	r.listed[dir] = entries
	return entries
}

// file is a file of a repository.
type file struct {
	size int64
	hash string // as the Hub has it: SHA-256 of large files, that of the Git blob of others
	open func() (io.ReadSeekCloser, error)
}

// newFile reads a file once, for its hash.
func newFile(open func() (io.ReadSeekCloser, error)) (*file, error) {
	contents, err := open()
	if err != nil {
		return nil, err
	}
	size, err := contents.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = contents.Seek(0, io.SeekStart)
	}
	f := &file{size: size, open: open}
	sum := sha256.New()
	if !f.isLarge() {
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", size)
	}
	if err == nil {
		_, err = io.Copy(sum, contents)
	}
	f.hash = hex.EncodeToString(sum.Sum(nil))
	return f, errors.Join(err, contents.Close())
}

// inMemory are contents that need not be closed.
type inMemory struct{ io.ReadSeeker }

func (inMemory) Close() error { return nil }

// generated returns a file with the contents of conformance.ContentsOf.
func generated(key string, size int64) *file {
	f, _ := newFile(func() (io.ReadSeekCloser, error) { // reading memory cannot fail
		return inMemory{io.NewSectionReader(conformance.ContentsOf(key, size), 0, size)}, nil
	})
	return f
}

// ofText returns a file with these contents.
func ofText(text string) *file {
	f, _ := newFile(func() (io.ReadSeekCloser, error) { return inMemory{strings.NewReader(text)}, nil }) // as above
	return f
}

func (f *file) isLarge() bool { return f.size >= large }

// corrupt returns the file with another first byte, and the same hash.
func (f *file) corrupt() *file {
	other := *f
	other.open = func() (io.ReadSeekCloser, error) {
		contents, err := f.open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(contents)
		if len(text) > 0 {
			text[0]++
		}
		return inMemory{bytes.NewReader(text)}, errors.Join(err, contents.Close())
	}
	return &other
}

// serve sends the contents. Those of a file on a disk are sent by sendfile.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	contents, err := f.open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer contents.Close() // opened for reading
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, contents)
}
