package admission

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"pgregory.net/rapid"
)

func TestPatchIsSmall(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`{"a":1}`, `{"a":1}`, `null`},
		{`{"a":1}`, `{"a":2,"b/~c":{"d":null}}`, `[{"op":"replace","path":"/a","value":2},{"op":"add","path":"/b~1~0c","value":{"d":null}}]`},
		{`{"a":1,"b":2}`, `{"a":1}`, `[{"op":"remove","path":"/b"}]`},
		{`{"a":null}`, `{"a":[]}`, `[{"op":"replace","path":"/a","value":[]}]`},
		{
			`{"l":[{"name":"main","x":1}]}`, `{"l":[{"name":"first"},{"name":"main","x":2},{"name":"last"}]}`,
			`[{"op":"add","path":"/l/0","value":{"name":"first"}},{"op":"replace","path":"/l/1/x","value":2},{"op":"add","path":"/l/2","value":{"name":"last"}}]`,
		},
		{`{"l":[1,2]}`, `{"l":[2]}`, `[{"op":"replace","path":"/l","value":[2]}]`},
	} {
		if got, err := patch([]byte(c.before), []byte(c.after)); err != nil || string(got) != c.want {
			t.Errorf("patch(%s, %s) = %s, %v; want %s", c.before, c.after, got, err, c.want)
		}
	}
}

// The patch between any two documents turns the first into the second.
func TestPatchIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anyGroup(2).Draw(t, "before"), anyGroup(2).Draw(t, "after")
		a, _ := json.Marshal(before)
		b, _ := json.Marshal(after)
		ops, err := patch(a, b)
		if err != nil {
			t.Fatal(err)
		}
		got := a
		if string(ops) != "null" {
			p, err := jsonpatch.DecodePatch(ops)
			if err != nil {
				t.Fatal(err)
			}
			if got, err = p.Apply(a); err != nil {
				t.Fatalf("%v: %s", err, ops)
			}
		}
		x, _ := decode(got)
		y, _ := decode(b)
		if !reflect.DeepEqual(x, y) {
			t.Fatalf("%s with %s = %s, want %s", a, ops, got, b)
		}
	})
}

// anyGroup generates JSON objects from few keys, so that two of them share some.
func anyGroup(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		m := make(map[string]any)
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"name", "mountPath", "a/b", "~", "l"}), 0, 3).Draw(t, "keys") {
			m[key] = anyValue(depth).Draw(t, key)
		}
		return m
	})
}

func anyValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 3
		if depth == 0 {
			kinds = 1
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 2:
			return anyGroup(depth-1).Draw(t, "group")
		case 3:
			list := []any{}
			for i := range rapid.IntRange(0, 3).Draw(t, "length") {
				list = append(list, anyValue(depth-1).Draw(t, fmt.Sprint(i)))
			}
			return list
		case 1:
			return nil
		}
		return rapid.SampledFrom([]any{1, "x", true}).Draw(t, "scalar")
	})
}
