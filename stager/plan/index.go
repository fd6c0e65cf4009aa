package plan

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

// Counts describes the contents of one shard.
type Counts struct {
	Samples int
	Classes []ClassCount // ascending; nil: unknown
}

// ClassCount is the number of samples of a class; Class is an index of Manifest.Classes.
type ClassCount struct{ Class, Samples int32 }

// Index collects metadata of shards from a file of JSON lines,
//
//	{"key": "train-0001.tar", "size": 104857600, "samples": 1000, "classes": {"cat": 700, "dog": 300}}
//
// or from a file beside each shard, with one such object that needs no key. The size, in bytes, and
// the classes are optional. The zero value is ready to use.
type Index struct {
	of      map[string]Counts // by key; class numbers are those of ids
	ids     map[string]int32
	sizes   map[string]int64 // in bytes, where known
	classed bool             // some shards have classes
}

// Beside returns the key of a shard's metadata file: train-0001.json for train-0001.tar. It returns
// "" for a key that is itself such a file.
func Beside(key string) string {
	ext := path.Ext(path.Base(key))
	if ext == ".json" {
		return ""
	}
	return strings.TrimSuffix(key, ext) + ".json"
}

// indexLine is a line of an index. Required fields are pointers.
type indexLine struct {
	Key     string         `json:"key"`
	Size    *int64         `json:"size"`
	Samples *int           `json:"samples"`
	Classes map[string]int `json:"classes"`
}

// maxSamples keeps sums of counts exact.
const maxSamples = math.MaxInt32

func parseIndexLine(text []byte) (line indexLine, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&line); err != nil {
		return line, fmt.Errorf(`%s; write {"key": "a.tar", "samples": 100, "classes": {"cat": 60, "dog": 40}}`, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return line, errors.New("unexpected data after the object; write one object per line")
	}
	if line.Samples == nil {
		return line, errors.New(`"samples" is missing`)
	}
	if *line.Samples < 0 || *line.Samples > maxSamples {
		return line, fmt.Errorf(`invalid "samples": %d`, *line.Samples)
	}
	for _, class := range slices.Sorted(maps.Keys(line.Classes)) {
		if n := line.Classes[class]; n < 0 || n > maxSamples {
			return line, fmt.Errorf("class %q has an invalid number of samples: %d", class, n)
		}
	}
	return line, nil
}

// ReadLines reads a file of JSON lines. Errors in it are returned as [Faults].
func (x *Index) ReadLines(file io.Reader) error {
	var wrong faultList
	stands := make(map[string]int)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		line, err := parseIndexLine(lines.Bytes())
		switch {
		case err != nil:
			wrong.add(n, "%v", err)
		case line.Key == "":
			wrong.add(n, `"key" is missing`)
		case stands[line.Key] > 0:
			wrong.add(n, "duplicate %q, see line %d; write it once", line.Key, stands[line.Key])
		default:
			stands[line.Key] = n
			x.add(line.Key, line)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		wrong.add(n+1, "the line is longer than 1 MiB; an index has one object per line")
	} else if lines.Err() != nil {
		return lines.Err()
	}
	return wrong.err()
}

// ReadBeside reads the metadata file of one shard.
func (x *Index) ReadBeside(key string, text []byte) error {
	line, err := parseIndexLine(text)
	if err == nil {
		x.add(key, line)
	}
	return err
}

func (x *Index) add(key string, line indexLine) {
	if x.of == nil {
		x.of, x.ids, x.sizes = make(map[string]Counts), make(map[string]int32), make(map[string]int64)
	}
	c := Counts{Samples: *line.Samples}
	if line.Size != nil {
		x.sizes[key] = *line.Size
	}
	if line.Classes != nil {
		x.classed = true
		c.Classes = make([]ClassCount, 0, len(line.Classes))
		for name, n := range line.Classes {
			id, known := x.ids[name]
			if !known {
				id = int32(len(x.ids))
				x.ids[name] = id
			}
			c.Classes = append(c.Classes, ClassCount{id, int32(n)}) // at most maxSamples
		}
	}
	x.of[key] = c
}

// Count copies an index into the manifest. Each shard must be in the index, with its classes if the
// order needs them; otherwise Count returns an [EnvError] that names the missing shards.
func (m *Manifest) Count(x *Index, classes bool) error {
	m.Classes = slices.Sorted(maps.Keys(x.ids))
	number := make([]int32, len(m.Classes)) // indexed by the index's number
	for i, name := range m.Classes {
		number[x.ids[name]] = int32(i)
	}
	m.Counts = make([]Counts, m.Len())
	var missing []string
	n := 0
	for i := range m.Counts {
		o, err := m.Objects.At(i)
		if err != nil {
			return err
		}
		c, known := x.of[o.Key]
		if !known || classes && c.Classes == nil {
			if n++; len(missing) < 3 {
				missing = append(missing, o.Key)
			}
			continue
		}
		if size, reported := x.sizes[o.Key]; reported && size != o.Size {
			return &EnvError{fmt.Errorf("the counts of %s are for %d bytes, but it has %d bytes; create them again", o.Key, size, o.Size)}
		}
		for j := range c.Classes {
			c.Classes[j].Class = number[c.Classes[j].Class]
		}
		slices.SortFunc(c.Classes, func(a, b ClassCount) int { return cmp.Compare(a.Class, b.Class) })
		m.Counts[i] = c
	}
	clear(x.of) // its class numbers are no longer valid
	if n == 0 {
		return nil
	}
	what := "samples"
	if classes {
		what = "classes"
	}
	beside := Beside(missing[0])
	if beside == "" {
		beside = missing[0]
	}
	return &EnvError{fmt.Errorf("the counts of %s are missing for %d of %d shards, such as %s: add them to the input's index, or next to each shard, as in %s",
		what, n, m.Len(), strings.Join(missing, ", "), beside)}
}
