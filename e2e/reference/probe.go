package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"

	"github.com/stager-dev/stager/stager/plan"
)

// shortest is a plan with what is required, and nothing else.
const shortest = `{"apiVersion": "stager.dev/v1alpha1", "kind": "StagePlan", "metadata": {"name": "x"}, "spec": {
  "volumes": [{"name": "v"}],
  "inputs": [{"name": "a", "source": "s3://b/a/", "path": "/a"}],
  "outputs": [{"name": "o", "path": "/o", "destination": "s3://b/o/", "hold": {}}]}}`

// windowed is such a plan with a window.
const windowed = `{"apiVersion": "stager.dev/v1alpha1", "kind": "StagePlan", "metadata": {"name": "x"}, "spec": {
  "volumes": [{"name": "v"}],
  "inputs": [{"name": "a", "source": "s3://b/a/", "path": "/a", "mode": "window", "window": {"size": "1Gi", "minReady": {}}, "order": {}}],
  "outputs": [{"name": "o", "path": "/o", "destination": "s3://b/o/", "hold": {}}]}}`

// changes make plans of windowed in which other fields are valid.
var changes = []map[string]any{
	nil,
	{"spec.inputs[].sources": []any{map[string]any{"source": "s3://b/a/"}}, "spec.inputs[].source": nil, "spec.inputs[].order.by": "weighted"},
	{"spec.inputs[].order.by": "block"},
	{"spec.inputs[].order.by": "balanced"},
	{"spec.inputs[].unpack": "auto"},
	{"spec.outputs[].keep": map[string]any{"last": 1, "metric": "loss", "best": 1}},
}

// probe finds out what the parser accepts for f.
func (f *Field) probe() error {
	switch f.Path {
	case "spec.inputs[].source", "spec.inputs[].window": // required under conditions
	default:
		f.Required = f.faultWithout(windowed) != ""
	}
	if !f.Required {
		if err := f.findDefault(); err != nil {
			return err
		}
	}
	switch f.Type.Kind() {
	case reflect.String:
		f.Enum = f.findEnum("~")
	case reflect.Slice:
		if f.Type.Elem().Kind() == reflect.String {
			f.Enum = f.findEnum([]any{"~"})
		}
	case reflect.Int, reflect.Int64:
		if f.Type.PkgPath() == "" {
			f.findBounds()
		}
	}
	return nil
}

// faultWithout returns what the parser reports of f where a plan does not have it.
func (f *Field) faultWithout(text string) string {
	p := decoded(text)
	set(p, f.Path, nil)
	return faultAt(p, f.Path)
}

// findDefault reads the value that the parser sets.
func (f *Field) findDefault() error {
	for _, text := range []string{shortest, windowed} {
		made, err := plan.Parse([]byte(text), nil)
		if err != nil {
			return err
		}
		out, err := json.Marshal(made)
		if err != nil {
			return err
		}
		value, found := get(decoded(string(out)), f.Path)
		if _, group := value.(map[string]any); !found || group {
			continue
		}
		if given, _ := get(decoded(text), f.Path); given == nil {
			f.Default = value
			return nil
		}
	}
	return nil
}

var unknownValue = regexp.MustCompile(`^unknown value "~"; use (.*)$`)

// findEnum returns the values that the parser names when it refuses another.
func (f *Field) findEnum(wrong any) []string {
	for _, change := range changes {
		for _, at := range []string{f.Path, f.Path + "[0]"} {
			p := changed(change)
			set(p, f.Path, wrong)
			if m := unknownValue.FindStringSubmatch(faultAt(p, at)); m != nil {
				return strings.Split(strings.ReplaceAll(m[1], " or ", ", "), ", ")
			}
		}
	}
	return nil
}

// findBounds finds the least and the largest number that the parser accepts.
func (f *Field) findBounds() {
	accepts := func(change map[string]any, n int64) bool {
		p := changed(change)
		set(p, f.Path, n)
		return faultAt(p, f.Path) == ""
	}
	for _, change := range changes {
		if !accepts(change, 1) {
			continue
		}
		for _, least := range []int64{1, 0} {
			if !accepts(change, least-1) {
				f.Min = &least
				break
			}
		}
		if accepts(change, math.MaxInt32) {
			return
		}
		low, high := int64(1), int64(math.MaxInt32)
		for high-low > 1 {
			if middle := (low + high) / 2; accepts(change, middle) {
				low = middle
			} else {
				high = middle
			}
		}
		f.Max = &low
		return
	}
}

// faultAt returns what the parser reports of a path, which has [] for each first entry.
func faultAt(p map[string]any, path string) string {
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	_, err = plan.Parse(text, nil)
	var faults plan.Faults
	errors.As(err, &faults)
	for _, fault := range faults {
		if fault.Path == strings.ReplaceAll(path, "[]", "[0]") {
			return fault.Text
		}
	}
	return ""
}

func decoded(text string) map[string]any {
	var p map[string]any
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(fmt.Sprintf("reference: %v in %s", err, text))
	}
	return p
}

// changed returns windowed with changes.
func changed(change map[string]any) map[string]any {
	p := decoded(windowed)
	for path, value := range change {
		set(p, path, value)
	}
	return p
}

// set sets a value, or removes it if it is nil. What is above it is made; of a list the first entry
// is meant.
func set(p map[string]any, path string, value any) {
	first, rest, deeper := strings.Cut(path, ".")
	name, list := strings.CutSuffix(first, "[]")
	if !deeper {
		if p[name] = value; value == nil {
			delete(p, name)
		}
		return
	}
	below, ok := p[name]
	if !ok && list {
		below = []any{map[string]any{}}
	} else if !ok {
		below = map[string]any{}
	}
	p[name] = below
	if list {
		below = below.([]any)[0]
	}
	set(below.(map[string]any), rest, value)
}

// get is the opposite of set.
func get(p map[string]any, path string) (value any, found bool) {
	first, rest, deeper := strings.Cut(path, ".")
	name, list := strings.CutSuffix(first, "[]")
	value, found = p[name]
	if !deeper {
		return value, found
	}
	if entries, ok := value.([]any); ok && list && len(entries) > 0 {
		value = entries[0]
	}
	below, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return get(below, rest)
}
