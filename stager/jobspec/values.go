package jobspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// regionNode parses the text of a pair's value. It returns nil if that fails.
func regionNode(region string) *yamledit.Node {
	// The space makes a JSON value that follows its colon directly valid YAML.
	d := yamledit.Split([]byte("v: " + region))[0]
	if yamledit.Parse(d) != nil {
		return nil
	}
	return d.Root.Get("v")
}

// value returns the value of a region that ended with a line break or, if open is true, at the end
// of the file. known is false if the region has an alias, whose anchor is elsewhere, or cannot be
// parsed.
func value(region string, open bool) (v any, known bool) {
	if !open {
		region += "\n"
	}
	n := regionNode(region)
	if n == nil || hasAlias(n) {
		return nil, false
	}
	return decode(n), true
}

func hasAlias(n *yamledit.Node) bool {
	if n.Kind == yamledit.Alias {
		return true
	}
	for i := range n.Len() {
		if hasAlias(nth(n, i)) {
			return true
		}
	}
	return false
}

// decode returns the value of a node in the types of yamledit. An alias is nil.
func decode(n *yamledit.Node) any {
	switch {
	case n.IsNull():
		return nil
	case n.Kind == yamledit.Mapping:
		m := yamledit.Map{}
		for _, p := range n.Pairs {
			m = append(m, yamledit.Entry{Key: p.Key.Text(), Value: decode(p.Value)})
		}
		return m
	case n.Kind == yamledit.Sequence:
		items := []any{}
		for _, item := range n.Items {
			items = append(items, decode(item))
		}
		return items
	case n.Kind == yamledit.Alias:
		return nil
	}
	return decodeScalar(n)
}

// decodeScalar resolves a scalar with a widely used library. Only scalars without quotes and
// scalars with a tag can differ from their text.
func decodeScalar(n *yamledit.Node) any {
	raw, text := n.Raw(), n.Text()
	if !n.Tagged() && (raw != text || yamledit.Plain(text, true) && !quantityLike(text)) {
		return text
	}
	var v any
	if err := yaml.Unmarshal([]byte(n.Written()), &v); err != nil {
		return text
	}
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64:
		return v
	case int:
		return int64(v)
	case time.Time: // not in JSON
		return text
	}
	return text
}

// quantityLike reports whether a text starts like a number.
func quantityLike(text string) bool { return strings.IndexByte("0123456789+-.", text[0]) >= 0 }

// equal reports whether a node has exactly the given value. The order of keys does not matter.
func equal(value any, n *yamledit.Node) bool {
	switch v := value.(type) {
	case yamledit.Map:
		return n != nil && n.Kind == yamledit.Mapping && len(n.Pairs) == len(v) && !slices.ContainsFunc(v, func(e yamledit.Entry) bool {
			p := n.Pair(e.Key)
			return p == nil || !equal(e.Value, p.Value)
		})
	case []any:
		return n != nil && n.Kind == yamledit.Sequence && slices.EqualFunc(v, n.Items, equal)
	}
	if n != nil && (n.Len() > 0 || n.Kind == yamledit.Alias) {
		return false
	}
	return fmt.Sprintf("%T %[1]v", whole(value)) == fmt.Sprintf("%T %[1]v", whole(decode(n)))
}

// sameQuantity reports whether a node is the same quantity as a value. The API server normalizes
// quantities.
func sameQuantity(value any, n *yamledit.Node) bool {
	a, err := resource.ParseQuantity(scalarText(value))
	if err != nil || n.Kind != yamledit.Scalar {
		return false
	}
	b, err := resource.ParseQuantity(n.Text())
	return err == nil && a.Cmp(b) == 0
}

// whole returns an integral number as an integer, because JSON does not distinguish the two.
func whole(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case float64:
		if i := int64(v); float64(i) == v {
			return i
		}
	}
	return v
}

// alike reports whether a node has the given value. Mappings and lists may have additional entries.
func alike(value any, n *yamledit.Node) bool {
	if n == nil {
		return value == nil
	}
	switch v := value.(type) {
	case nil:
		return n.IsNull()
	case yamledit.Map:
		if n.Kind != yamledit.Mapping {
			return false
		}
		for i, e := range v {
			var p *yamledit.Pair
			if i < len(n.Pairs) && n.Pairs[i].Key.Is(e.Key) { // in the order that inject writes
				p = &n.Pairs[i]
			} else {
				p = n.Pair(e.Key)
			}
			if p == nil || !alike(e.Value, p.Value) {
				return false
			}
		}
		return true
	case []any:
		if n.Kind != yamledit.Sequence || len(n.Items) < len(v) {
			return false
		}
		for i, item := range v {
			if !alike(item, n.Items[i]) {
				return false
			}
		}
		return true
	}
	return n.Is(scalarText(value))
}

func scalarText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	text, _ := json.Marshal(v) // a number or bool
	return string(text)
}
