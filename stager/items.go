package stager

import (
	"path"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// items are a manifest's objects as items of a window.
type items struct {
	spec plan.Input
	m    plan.Manifest
}

// Len implements [window.Items].
func (x items) Len() int { return x.m.Len() }

// Item implements [window.Items].
func (x items) Item(i int) (window.Item, error) {
	obj, err := x.m.Objects.At(i)
	if err != nil {
		return window.Item{}, err
	}
	item := measured(x.spec, obj)
	item.Version = string(obj.Version)
	if !item.UpTo {
		item.Digest = obj.Sum.String()
	}
	if x.m.Members != nil && !item.UpTo {
		item.Tree, item.Beside = true, disk.Beside(item.Name, obj.Size)+treeRoom+besides(x.m.Members[i])
	}
	if x.m.Counts != nil {
		item.Samples = x.m.Counts[i].Samples
	}
	return item, nil
}

// measured returns the name and the size of an object as an item: of one that is not a group.
func measured(spec plan.Input, obj backends.Object) window.Item {
	name := itemName(spec, obj)
	if room := spec.UnpackedRoom(obj.Key, obj.Size, disk.Block); room > 0 {
		return window.Item{Name: name, Size: room, Tree: true, UpTo: true, Beside: disk.Beside(name, room) + treeRoom + download.SpareNames}
	}
	return window.Item{Name: name, Size: obj.Size, Beside: disk.Beside(name, obj.Size) + disk.Room(obj.Size) - obj.Size}
}

// summary is what a window needs of all listed objects together. It is computed as they arrive, so
// that no second pass over them delays the first shard.
type summary struct {
	spec   plan.Input
	digest *plan.Digester
	extent *window.Extent // nil if an index adds samples after the listing
}

// newSummary returns nil if an input's window depends on more than its listing, see
// [plan.NewDigester].
func newSummary(spec plan.Input) *summary {
	digest := plan.NewDigester(spec)
	if digest == nil {
		return nil
	}
	s := &summary{spec: spec, digest: digest}
	if spec.Index == "" {
		s.extent = window.NewExtent(window.Reuse(spec.Window.Reuse))
	}
	return s
}

// add adds the next object of the listing; to nil it adds nothing.
func (s *summary) add(obj backends.Object) {
	if s == nil {
		return
	}
	s.digest.Add(obj)
	if s.extent != nil {
		s.extent.Add(measured(s.spec, obj))
	}
}

// of returns the digest and the extent of a listed manifest. The extent is nil if only the items
// themselves have it.
func (s *summary) of(m plan.Manifest, order plan.OrderSpec) (digest string, extent *window.Extent, err error) {
	if s == nil {
		digest, err = plan.Digest(m, order, plan.Shard{})
		return digest, nil, err
	}
	return s.digest.Sum(), s.extent, nil
}

// treeRoom is the disk space of a tree besides its contents: its directory, the directory of its
// second links, their parent, and a note during the fetch.
const treeRoom = disk.DirRoom + 2*disk.Block

// besides returns the disk space of a group besides the blocks of its files: directories and names,
// each with its second link.
func besides(group plan.Members) (sum int64) {
	made := make(map[string]bool)
	for name, obj := range group.All() {
		sum += 2*disk.NameRoom(path.Base(name)) + obj.Size>>16
		for dir := path.Dir(name); dir != "." && !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			sum += disk.DirRoom + 2*disk.NameRoom(path.Base(dir))
		}
	}
	return sum
}

// itemName returns the name of an item on disk.
func itemName(spec plan.Input, obj backends.Object) string {
	if directory, format := unpack.Dir(obj.Key); format != "" && spec.Unpack == plan.UnpackAuto {
		return plan.FlatName(directory)
	}
	return plan.FlatName(obj.Key)
}
