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

// What an item of a window is, which is what one lease hands out.
const (
	ItemsFiles   = "files"       // each object, the default
	ItemsDirs    = "directories" // the objects that lie in one directory, not those in directories below it
	ItemsBundles = "bundles"     // neighbours in the listing, as many as a size allows
)

// Grouped tells whether an item is a directory of objects.
func (w Window) Grouped() bool { return w.Items != "" && w.Items != ItemsFiles }

// Groups makes items of the objects of a listing, in its order. Which objects make an
// item depends on the listing alone, so that a manifest of groups is as good a name of
// the dataset as one of objects.
//
// A group is told as an object: its key is that of the directory ("/" for the source
// itself), or bundle-000000 and so on; its size is the room that its files take, its
// version tells of every one of them.
type Groups struct {
	window Window
	room   func(size int64) int64 // what a file takes on disk
	dir    int64                  // what a directory takes, for the size of a bundle

	list  []*group
	byDir map[string]*group
}

type group struct {
	key     string
	room    int64
	dirs    int64  // what the directories take
	last    string // the directory of the last member
	sum     hash.Hash
	members Members
}

// NewGroups begins a grouping as a window wants it. room is what a file of a size takes,
// and dir what a directory does: of these a bundle holds as many as its size allows.
func NewGroups(w Window, room func(size int64) int64, dir int64) *Groups {
	return &Groups{window: w, room: room, dir: dir, byDir: make(map[string]*group)}
}

// Add takes the next object of the listing.
func (g *Groups) Add(obj backends.Object) error {
	in, room := g.group(obj), g.room(obj.Size)
	if room < obj.Size || in.room > math.MaxInt64-room {
		return fmt.Errorf("%s: the files of %s are more than can be counted", obj.Key, in.key)
	}
	in.dirs += in.newDirs(obj.Key) * g.dir
	in.last = path.Dir(obj.Key)
	in.room += room
	in.sum.Write(in.members.Add(obj)) // a hash takes all
	return nil
}

// group is the one an object belongs to.
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

// newDirs is how many directories a file of a bundle needs that the one before it did not.
func (in *group) newDirs(key string) (n int64) {
	for dir := path.Dir(key); dir != "." && dir != in.last && !strings.HasPrefix(in.last, dir+"/"); dir = path.Dir(dir) {
		n++
	}
	return n
}

// Manifest is that of the groups, directories by name.
func (g *Groups) Manifest() (m Manifest) {
	slices.SortStableFunc(g.list, func(a, b *group) int { return strings.Compare(a.key, b.key) })
	for _, in := range g.list {
		in.members.clip()
		m.Objects = append(m.Objects, backends.Object{
			Key: in.key, Size: in.room, Version: backends.Version("sha256:" + hex.EncodeToString(in.sum.Sum(nil))),
		})
		m.Members = append(m.Members, in.members)
	}
	return m
}

// Members are the objects of one group. There may be a million, so they are kept as
// bytes.
type Members struct {
	dir  string // which all of their keys begin with
	list []byte
}

func (m *Members) clip() { m.list = slices.Clip(slices.Clone(m.list)) }

// Add appends an object whose key begins with the directory of the group, none for the zero
// value. It returns what it noted of which object this is, a slice that the next Add may
// overwrite; the checksum is not of that.
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

// appendText notes a text, in half the bytes where it is hexadecimal, as versions and
// checksums are.
func appendText(list []byte, text string) []byte {
	if raw, err := hex.DecodeString(text); err == nil && hex.EncodeToString(raw) == text {
		return append(binary.AppendUvarint(list, uint64(len(raw))<<1|1), raw...)
	}
	return append(binary.AppendUvarint(list, uint64(len(text))<<1), text...)
}

// All yields the objects in the order of the listing, each with its name within the
// group: what comes behind the directory, or the whole key in a bundle.
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
