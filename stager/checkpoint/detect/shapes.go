package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/format"
)

// SpreadSlack is the tolerance for the time within which the files of a checkpoint are written.
// It is added to twice the time of the last checkpoint.
const SpreadSlack = 10 * time.Second

// files are the files of a checkpoint whose paths have one pattern. A pattern is a path with #
// for each number.
type files struct {
	n     int
	sizes []int64 // ascending
}

// shape describes the files of a checkpoint, and how far apart they were written.
type shape struct {
	files  map[string]files
	spread int64  // nanoseconds
	of     string // the name of the newest checkpoint of this shape
	sure   bool   // a checkpoint of it was certainly complete, or two saves ended with it
}

func pattern(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch digit := name[i] >= '0' && name[i] <= '9'; {
		case !digit:
			b.WriteByte(name[i])
		case i == 0 || name[i-1] < '0' || name[i-1] > '9':
			b.WriteByte('#')
		}
	}
	return b.String()
}

func shapeOf(v View) shape {
	s := shape{files: make(map[string]files), of: v.Name}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, f := range v.Files {
		p := pattern(f.Path)
		of := s.files[p]
		s.files[p] = files{of.n + 1, append(of.sizes, f.Size)}
		first, last = min(first, f.Modified), max(last, f.Modified)
	}
	for _, of := range s.files {
		slices.Sort(of.sizes)
	}
	s.spread = last - first
	return s
}

// equal reports whether two shapes have the same number of files of each pattern.
func (s shape) equal(other shape) bool {
	return maps.EqualFunc(s.files, other.files, func(a, b files) bool { return a.n == b.n })
}

// Shapes holds the shapes of the complete checkpoints of an output, by the pattern of their
// names. The zero Shapes is empty. It is not safe for concurrent use.
type Shapes struct {
	known map[string]shape
	other map[string]shape // the shape of one checkpoint that differs from those before it
}

// Learn records a checkpoint whose save has ended. final reports whether it was certainly
// complete. Otherwise a killed writer may have left it, so its shape completes later checkpoints
// only after a second save ended with it. A shape that differs from the known one replaces it
// when a second checkpoint has it. line then describes the change, for the log.
func (s *Shapes) Learn(v View, final bool) (line string) {
	if s.known == nil {
		s.known, s.other = make(map[string]shape), make(map[string]shape)
	}
	name, now := pattern(v.Name), shapeOf(v)
	now.sure = final
	known, ok := s.known[name]
	switch before := s.other[name]; {
	case !ok:
		s.known[name] = now
	case known.equal(now):
		now.sure = final || known.sure || known.of != v.Name
		s.known[name] = now
		delete(s.other, name)
	case before.of != "" && before.of != v.Name && before.equal(now):
		s.known[name] = now
		delete(s.other, name)
		return fmt.Sprintf("checkpoints have other files than before: %s", difference(known, now))
	default:
		s.other[name] = now
	}
	return ""
}

// difference describes one pattern whose number of files changed.
func difference(before, now shape) string {
	all := maps.Clone(before.files)
	maps.Copy(all, now.files)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if was, is := before.files[p].n, now.files[p].n; was != is {
			return fmt.Sprintf("%d of %s instead of %d", is, p, was)
		}
	}
	return "none"
}

// compare compares a checkpoint with the known shape of its name. missing is a pattern of which
// earlier checkpoints had more files. same reports that all of these are true:
//
//   - The checkpoint has as many files of each pattern.
//   - Each file is whole by its own structure, or files of its pattern have the known sizes.
//   - All files were written within about the same time.
//
// The last condition excludes files of an earlier save: a name without a number is written
// repeatedly and may hold files of two saves.
func (s *Shapes) compare(v View) (missing string, same bool) {
	if !s.Known(v.Name) {
		return "", false
	}
	known, now := s.known[pattern(v.Name)], shapeOf(v)
	for _, p := range slices.Sorted(maps.Keys(known.files)) {
		if n := known.files[p].n; now.files[p].n < n {
			if n > 1 {
				return fmt.Sprintf("%d of %s", n, p), false
			}
			return p, false
		}
	}
	if !known.sure || !known.equal(now) || now.spread > 2*known.spread+int64(SpreadSlack) || pattern(v.Name) == v.Name {
		return "", false
	}
	for _, f := range v.Files {
		if p := pattern(f.Path); f.Format.Verdict != format.Whole && !slices.Equal(known.files[p].sizes, now.files[p].sizes) {
			return "", false
		}
	}
	return "", true
}

// repeats reports whether a checkpoint has other files than earlier ones of its name, and the same
// as the one before it.
func (s *Shapes) repeats(v View) bool {
	if s == nil {
		return false
	}
	before, ok := s.other[pattern(v.Name)]
	return ok && before.of != v.Name && before.equal(shapeOf(v))
}

// Known reports whether a shape is known for checkpoints with such a name.
func (s *Shapes) Known(name string) bool {
	if s == nil {
		return false
	}
	_, ok := s.known[pattern(name)]
	return ok
}

// stored is the JSON form of Shapes.
type stored struct {
	Known map[string]storedShape `json:"known"`
	Other map[string]storedShape `json:"other,omitempty"`
}

type storedShape struct {
	Files  map[string][]int64 `json:"files"` // sizes by pattern
	Spread int64              `json:"spread"`
	Of     string             `json:"of"`
	Sure   bool               `json:"sure,omitempty"`
}

// MarshalJSON returns the shapes in a form that a later process can load.
func (s *Shapes) MarshalJSON() ([]byte, error) {
	convert := func(shapes map[string]shape) map[string]storedShape {
		all := make(map[string]storedShape, len(shapes))
		for name, sh := range shapes {
			sizes := make(map[string][]int64, len(sh.files))
			for p, of := range sh.files {
				sizes[p] = of.sizes
			}
			all[name] = storedShape{sizes, sh.spread, sh.of, sh.sure}
		}
		return all
	}
	return json.Marshal(stored{convert(s.known), convert(s.other)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Shapes) UnmarshalJSON(text []byte) error {
	var from stored
	if err := json.Unmarshal(text, &from); err != nil {
		return err
	}
	convert := func(shapes map[string]storedShape) map[string]shape {
		all := make(map[string]shape, len(shapes))
		for name, st := range shapes {
			sh := shape{make(map[string]files, len(st.Files)), st.Spread, st.Of, st.Sure}
			for p, sizes := range st.Files {
				slices.Sort(sizes)
				sh.files[p] = files{len(sizes), sizes}
			}
			all[name] = sh
		}
		return all
	}
	s.known, s.other = convert(from.Known), convert(from.Other)
	return nil
}
