package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"iter"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// What an item of a window is. A lease is for one item.
const (
	ItemsFiles   = "files"       // each object (default)
	ItemsDirs    = "directories" // the objects of one directory, without its subdirectories
	ItemsBundles = "bundles"     // consecutive objects of the listing, up to a size
)

// Grouped reports whether an item is a directory of objects.
func (w Window) Grouped() bool { return w.Items != "" && w.Items != ItemsFiles }

// Groups combines the objects of a listing, in its order, to items. Which objects form an item
// depends only on the listing, so a manifest of groups identifies the dataset as well as a manifest
// of objects.
//
// A group is represented as an object. Its key is the directory's ("/" for the source itself), or
// bundle-000000 and so on. Its size is the room that its files need, and its version depends on
// every file.
type Groups struct {
	window Window
	room   func(size int64) int64 // room of a file on disk
	dir    int64                  // room of a directory, for the size of a bundle

	list  []*group
	byDir map[string]*group
}

type group struct {
	key     string
	room    int64
	dirs    int64  // room of the directories
	last    string // the directory of the last member
	sum     hash.Hash
	members Members
}

// NewGroups returns a grouping for a window. room returns the disk space of a file of a size, and
// dir is that of a directory; a bundle holds as many as its size allows.
func NewGroups(w Window, room func(size int64) int64, dir int64) *Groups {
	return &Groups{window: w, room: room, dir: dir, byDir: make(map[string]*group)}
}

// Add adds the next object of the listing.
func (g *Groups) Add(obj backends.Object) error {
	in, room := g.group(obj), g.room(obj.Size)
	if room < obj.Size || in.room > math.MaxInt64-room {
		return fmt.Errorf("%s: too many files in %s", obj.Key, in.key)
	}
	in.dirs += in.newDirs(obj.Key) * g.dir
	in.last = path.Dir(obj.Key)
	in.room += room
	in.sum.Write(in.members.Add(obj)) // a hash never fails
	return nil
}

// group returns the group of an object.
func (g *Groups) group(obj backends.Object) *group {
	key, directory := "", ""
	if g.window.Items == ItemsDirs {
		if directory = path.Dir(obj.Key); directory == "." {
			key, directory = "/", ""
		} else {
			key = directory
			directory += "/"
		}
		if in := g.byDir[key]; in != nil {
			return in
		}
	} else {
		if n := len(g.list); n > 0 {
			in := g.list[n-1]
			if in.room+in.dirs+in.newDirs(obj.Key)*g.dir+g.room(obj.Size) <= int64(g.window.Bundle) {
				return in
			}
		}
		key = fmt.Sprintf("bundle-%06d", len(g.list))
	}
	in := &group{key: key, sum: sha256.New(), members: Members{dir: directory}}
	g.list = append(g.list, in)
	if g.window.Items == ItemsDirs {
		g.byDir[key] = in
	} else if n := len(g.list); n > 1 {
		g.list[n-2].members.clip()
	}
	return in
}

// newDirs returns how many directories a file of a bundle needs in addition to those of the
// previous file.
func (in *group) newDirs(key string) (n int64) {
	for dir := path.Dir(key); dir != "." && dir != in.last && !strings.HasPrefix(in.last, dir+"/"); dir = path.Dir(dir) {
		n++
	}
	return n
}

// Manifest returns the manifest of the groups, directories sorted by name.
func (g *Groups) Manifest() (m Manifest) {
	slices.SortStableFunc(g.list, func(a, b *group) int { return strings.Compare(a.key, b.key) })
	objects := make(List, 0, len(g.list))
	for _, in := range g.list {
		in.members.clip()
		objects = append(objects, backends.Object{
			Key: in.key, Size: in.room, Version: backends.Version("sha256:" + hex.EncodeToString(in.sum.Sum(nil))),
		})
		m.Members = append(m.Members, in.members)
	}
	m.Objects = objects
	return m
}

// Members are the objects of one group. They are stored as bytes, as there may be a million.
type Members struct {
	dir  string // common directory of all keys
	list []byte
}

func (m *Members) clip() { m.list = slices.Clip(slices.Clone(m.list)) }

// Add appends an object, whose key must begin with the directory of the group (the zero value has
// none). It returns the bytes that identify the object, without the checksum; the next Add may
// overwrite them.
func (m *Members) Add(obj backends.Object) (which []byte) {
	from := len(m.list)
	m.list = appendText(m.list, obj.Key[len(m.dir):])
	m.list = appendText(m.list, string(obj.Version))
	m.list = binary.AppendUvarint(m.list, uint64(obj.Size))
	to := len(m.list)
	m.list = appendText(m.list, string(obj.Sum.Algorithm))
	m.list = appendText(m.list, obj.Sum.Value)
	return m.list[from:to]
}

// appendText appends a text, in half the bytes if it is hexadecimal, as versions and checksums are.
func appendText(list []byte, text string) []byte {
	if raw, err := hex.DecodeString(text); err == nil && hex.EncodeToString(raw) == text {
		return append(binary.AppendUvarint(list, uint64(len(raw))<<1|1), raw...)
	}
	return append(binary.AppendUvarint(list, uint64(len(text))<<1), text...)
}

// All yields the objects in the order of the listing, each with its name within the group: the key
// relative to the directory, or the whole key in a bundle.
func (m Members) All() iter.Seq2[string, backends.Object] {
	return func(yield func(string, backends.Object) bool) {
		for at := m.list; len(at) > 0; {
			number := func() uint64 {
				n, width := binary.Uvarint(at)
				at = at[width:]
				return n
			}
			text := func() string {
				n := number()
				out := at[:n>>1]
				at = at[n>>1:]
				if n&1 == 1 {
					return hex.EncodeToString(out)
				}
				return string(out)
			}
			name := text()
			obj := backends.Object{Key: m.dir + name, Version: backends.Version(text()), Size: int64(number())}
			obj.Sum = backends.Checksum{Algorithm: backends.Algorithm(text()), Value: text()}
			if !yield(name, obj) {
				return
			}
		}
	}
}
