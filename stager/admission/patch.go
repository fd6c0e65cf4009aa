package admission

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// operation is a JSON patch operation (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// MarshalJSON writes a value even if it is null, except for a removal, which has none.
func (o operation) MarshalJSON() ([]byte, error) {
	if o.Op == "remove" {
		return json.Marshal(map[string]string{"op": o.Op, "path": o.Path})
	}
	return json.Marshal(map[string]any{"op": o.Op, "path": o.Path, "value": o.Value})
}

// patch returns the JSON patch from before to after. It leaves out equal parts: new items are
// inserted into a list, which is not replaced as a whole.
func patch(before, after []byte) ([]byte, error) {
	a, err := decode(before)
	if err != nil {
		return nil, err
	}
	b, err := decode(after)
	if err != nil {
		return nil, err
	}
	return json.Marshal(differences(nil, "", a, b))
}

// decode keeps numbers as they are written.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// differences appends the operations that turn a, at path, into b.
func differences(ops []operation, path string, a, b any) []operation {
	if reflect.DeepEqual(a, b) {
		return ops
	}
	switch b := b.(type) {
	case map[string]any:
		if a, ok := a.(map[string]any); ok {
			return groupDifferences(ops, path, a, b)
		}
	case []any:
		if a, ok := a.([]any); ok {
			if more, ok := listDifferences(ops, path, a, b); ok {
				return more
			}
		}
	}
	return append(ops, operation{"replace", path, b})
}

func groupDifferences(ops []operation, path string, a, b map[string]any) []operation {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if _, stays := b[key]; !stays {
			ops = append(ops, operation{"remove", path + "/" + pointer.Replace(key), nil})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		here := path + "/" + pointer.Replace(key)
		if was, there := a[key]; there {
			ops = differences(ops, here, was, b[key])
		} else {
			ops = append(ops, operation{"add", here, b[key]})
		}
	}
	return ops
}

// listDifferences returns the operations that insert the items of b that a does not have. It
// reports false if an item of a was removed or moved. The operations are in order: when an item is
// inserted at index i, all items before it are equal to those of b.
func listDifferences(ops []operation, path string, a, b []any) (more []operation, ok bool) {
	more = slices.Clip(ops)
	for i, item := range b {
		here := path + "/" + strconv.Itoa(i)
		if len(a) > 0 && sameItem(a[0], item) {
			more = differences(more, here, a[0], item)
			a = a[1:]
			continue
		}
		more = append(more, operation{"add", here, item})
	}
	return more, len(a) == 0
}

// sameItem reports whether two list items are the same one, by the merge keys of Kubernetes lists.
func sameItem(a, b any) bool {
	x, ok := a.(map[string]any)
	y, also := b.(map[string]any)
	if ok && also {
		for _, key := range []string{"mountPath", "name"} {
			if x[key] != nil || y[key] != nil {
				return reflect.DeepEqual(x[key], y[key])
			}
		}
	}
	return reflect.DeepEqual(a, b)
}
