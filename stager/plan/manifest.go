package plan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Manifest records the contents of an input.
type Manifest struct {
	Objects  Objects   // in the order of the listing or of the list
	Counts   []Counts  // of the object at the same index; nil: unknown
	Classes  []string  // class names for Counts, ascending
	Shares   []Share   // of several sources; nil: a single source
	Unpacked bool      // archives become directories
	Members  []Members // of the group at the same index; nil: no groups
}

// Share is one source of a manifest. The objects of the sources follow each other.
type Share struct {
	Source  string // name for messages
	Objects int    // number of the manifest's objects that come from it
	Weight  int
}

// Join combines the manifests of several sources. It retains sample counts if all parts have them.
func Join(parts []Manifest, shares []Share) Manifest {
	m := Manifest{Shares: shares}
	var all joined
	for _, p := range parts {
		if objects := p.Objects; objects != nil {
			all = append(all, objects)
		}
		m.Members = append(m.Members, p.Members...)
		for _, c := range p.Counts {
			m.Counts = append(m.Counts, Counts{Samples: c.Samples})
		}
	}
	m.Objects = all
	if len(m.Counts) < m.Len() {
		m.Counts = nil
	}
	return m
}

// Arrange reduces the manifest to the objects of a list, in its order. The list has one name per
// line, exactly as in the source; empty lines are ignored. Errors in the list, which are names that
// the listing lacks and duplicates, are returned as [Faults].
func (m Manifest) Arrange(list io.Reader) (Manifest, error) {
	at := make(map[string]int32, m.Len())
	for i := range m.Len() {
		o, err := m.Objects.At(i)
		if err != nil {
			return Manifest{}, err
		}
		at[o.Key] = int32(i)
	}
	chosen := arranged{of: m.Objects}
	var out Manifest
	var wrong faultList
	stands := make(map[string]int)
	lines := bufio.NewScanner(list)
	lines.Buffer(nil, 2*maxPath)
	n := 0
	for lines.Scan() {
		n++
		name := strings.TrimSuffix(lines.Text(), "\r")
		if name == "" {
			continue
		}
		i, known := at[name]
		switch first := stands[name]; {
		case first > 0:
			wrong.add(n, "duplicate %q, see line %d; write it once", name, first)
		case !known:
			wrong.add(n, "%q is not in the source, or the input's include and exclude skip it", name)
		default:
			chosen.at = append(chosen.at, i)
			if m.Members != nil {
				out.Members = append(out.Members, m.Members[i])
			}
		}
		stands[name] = n
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		wrong.add(n+1, "the line is longer than any name; a list has one name per line")
	} else if lines.Err() != nil {
		return Manifest{}, lines.Err()
	}
	if n == 0 || len(stands) == 0 {
		wrong.add(0, "the list is empty; write one name per line")
	}
	out.Objects = chosen
	return out, wrong.err()
}

// faultList collects the errors of a file with as many lines as there are shards, and retains the
// first few.
type faultList struct {
	first Faults
	more  int
}

const faultsListed = 20

func (l *faultList) add(line int, format string, args ...any) {
	if len(l.first) == faultsListed {
		l.more++
		return
	}
	l.first = append(l.first, Fault{Line: line, Text: fmt.Sprintf(format, args...)})
}

func (l *faultList) err() error {
	if len(l.first) == 0 {
		return nil
	}
	if l.more > 0 {
		return append(l.first, Fault{Text: fmt.Sprintf("and %d more like these", l.more)})
	}
	return l.first
}
