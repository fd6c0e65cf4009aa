package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stager-dev/stager/stager/unpack"
)

// Limits of Linux for names and paths, in bytes.
const (
	maxPart = 255
	maxPath = 4095 // the 4096th byte ends the string
)

// reserved is the directory of a destination that belongs to stager.
const reserved = ".stager"

// CopyRecords is the directory at the destination in which copies record what they did. Listings
// never return it as data.
const CopyRecords = ".stager-copy/"

// Names decides whether the keys of one listing can be paths below a directory. Keys are untrusted,
// as anyone who can write to the store chooses them. A key is accepted unchanged or refused; it is
// never modified, since two keys could then become one file.
//
// It needs the keys in the ascending byte order in which stores list them, and remembers at most
// one key, however long the listing. The zero value is ready to use.
type Names struct {
	// Unpack means that archives become directories, see [unpack.Dir], which must not share a path
	// with any other object.
	Unpack bool

	last string
	// above are the lengths of the prefixes of last that are files themselves: "a" conflicts with
	// "a/b". Between the two any number of keys such as "a-x" may appear. But every key that can
	// precede the last "a/…" begins with "a" followed by a byte up to "/". So each file that still
	// matters is a prefix of the previous key.
	above []int
	// unpacked are the directories of archives for which the same is true: every key that can
	// precede the last "a/…" begins with "a" followed by such a byte, also "a.tar".
	unpacked []unpacked
}

// unpacked is the directory of an archive.
type unpacked struct{ dir, key string }

// Check checks the next key. It returns nil if the key is a relative path without "..", fits the
// file system, and conflicts with no earlier key.
func (n *Names) Check(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if key <= n.last && n.last != "" {
		return fmt.Errorf("the store lists it after %q, but listings must be sorted without duplicates", n.last)
	}
	keep := n.above[:0]
	for _, l := range n.above {
		if !strings.HasPrefix(key, n.last[:l]) || key[l] > '/' {
			break // longer prefixes cannot match either
		}
		if key[l] == '/' {
			return fmt.Errorf("file %q exists as well and cannot also be a directory; exclude one of them", key[:l])
		}
		keep = append(keep, l)
	}
	stays := true
	if n.Unpack {
		var err error
		if stays, err = n.unpack(key, keep); err != nil {
			return err
		}
	}
	if stays {
		keep = append(keep, len(key))
	}
	n.last, n.above = key, keep
	return nil
}

// unpack checks a key against the directories of archives, and reports whether it stays a file.
// files are the lengths of its prefixes that are files themselves.
func (n *Names) unpack(key string, files []int) (stays bool, err error) {
	n.unpacked = slices.DeleteFunc(n.unpacked, func(u unpacked) bool {
		return !strings.HasPrefix(key, u.dir) || key[len(u.dir)] > '/'
	})
	directory, format := unpack.Dir(key)
	for _, u := range n.unpacked {
		switch {
		case key[len(u.dir)] == '/':
			return false, fmt.Errorf("the archive %q becomes the directory %q, which would contain it; exclude one of them", u.key, u.dir)
		case format != "" && directory == u.dir:
			return false, fmt.Errorf("it would become the directory %q, and so does %q; exclude one of them", directory, u.key)
		}
	}
	switch {
	case format == "":
		return true, nil
	case slices.Contains(files, len(directory)):
		return false, fmt.Errorf("it would become the directory %q, and there is a file of that name; exclude one of them", directory)
	}
	if err := CheckPath(directory); err != nil {
		return false, fmt.Errorf("it would become the invalid directory %q: %w; exclude it", directory, err)
	}
	n.unpacked = append(n.unpacked, unpacked{directory, key})
	return false, nil
}

// checkKey is CheckPath for a key; its error says what to do.
func checkKey(key string) error {
	if key == "" {
		return errors.New("it is empty")
	}
	if err := CheckPath(key); err != nil {
		return fmt.Errorf("%w; exclude it", err)
	}
	return nil
}

// CheckPath returns why a name, by itself, cannot be a path below a directory.
func CheckPath(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > maxPath:
		return fmt.Errorf("it exceeds %d bytes, the limit of a path", maxPath)
	case !utf8.ValidString(name):
		return errors.New("it is not UTF-8")
	case name[0] == '/':
		return errors.New("it starts with a slash; only relative paths are allowed")
	}
	for i := range len(name) {
		if name[i] < ' ' || name[i] == 0x7f {
			return fmt.Errorf("it contains the control character 0x%02x", name[i])
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return errors.New("it has an empty part")
		case part == "." || part == "..":
			return fmt.Errorf("its part %q is a relative reference, not a name", part)
		case len(part) > maxPart:
			return fmt.Errorf("one of its parts exceeds %d bytes, the limit of a file name", maxPart)
		}
	}
	if first, _, _ := strings.Cut(name, "/"); first == reserved {
		return fmt.Errorf("the name %s is reserved for stager", reserved)
	}
	return nil
}

// Limits of FlatName.
const (
	maxFlat  = 200 // leaves room for a position in front
	flatHead = 60
	flatTail = 100 // includes the extensions
)

// escaped is made once: making it costs more than replacing in a name.
var escaped = strings.NewReplacer("%", "%25", "/", "%2F")

// FlatName returns a file name for a key, without directories. Different keys have different names.
// A name has at most 200 bytes, and equals the key if that has no slash. It ends as the key does,
// so that "*.tar" matches. A slash becomes "%2F" and a percent sign "%25", as in a URL. The middle
// of a longer name is replaced by 32 hexadecimal digits.
func FlatName(key string) string {
	name := escaped.Replace(key)
	if len(name) <= maxFlat {
		return name
	}
	// No shorter name contains "%~", since there "2" follows each "%".
	sum := sha256.Sum256([]byte(key))
	head, tail := flatHead, len(name)-flatTail
	for !utf8.RuneStart(name[head]) {
		head--
	}
	for !utf8.RuneStart(name[tail]) {
		tail++
	}
	return name[:head] + "%~" + hex.EncodeToString(sum[:16]) + "~" + name[tail:]
}
