package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one error in a plan.
type Fault struct {
	Path string // for example "spec.inputs[0].window.size"; empty for the whole file
	Line int    // in the file, from 1; 0 if unknown
	Text string // what is wrong and what to do
}

// String returns "line 12: spec.inputs[0].window.size: what and what to do".
func (f Fault) String() string {
	s := f.Text
	if f.Path != "" {
		s = f.Path + ": " + s
	}
	if f.Line > 0 {
		s = fmt.Sprintf("line %d: %s", f.Line, s)
	}
	return s
}

// Faults lists all errors of a plan, in the order of the file. It is the error type of [Parse].
type Faults []Fault

// Error returns one line for each fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// report collects faults and knows the line of each path.
type report struct {
	faults   Faults
	lines    map[string]int // by path
	reported map[string]bool
}

func newReport() *report {
	return &report{lines: make(map[string]int), reported: make(map[string]bool)}
}

// add reports a fault of a path, unless one was reported for the path or a parent of it: the second
// is mostly a consequence of the first.
func (r *report) add(path, format string, args ...any) {
	for p := path; ; p = parent(p) {
		if r.reported[p] {
			return
		}
		if p == "" {
			break
		}
	}
	r.reported[path] = true
	r.faults = append(r.faults, Fault{path, r.line(path), fmt.Sprintf(format, args...)})
}

// line returns the line of path, or of its nearest known parent.
func (r *report) line(path string) int {
	for path != "" {
		if n := r.lines[path]; n > 0 {
			return n
		}
		path = parent(path)
	}
	return r.lines[""]
}

// parent returns the path of the parent.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// err returns the faults in the order of the file, or nil.
func (r *report) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return r.faults
}

// nearest returns the known word that text was most likely meant to be, or "".
func nearest(text string, known []string) string {
	best, least := "", len(text)/3+1
	for _, k := range known {
		if d := distance(strings.ToLower(text), strings.ToLower(k)); d <= least && d < len(k) {
			best, least = k, d-1
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
