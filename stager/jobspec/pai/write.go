package pai

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// entry is a key with its value and a comment about its origin.
type entry struct {
	key     string
	value   any // string, int, bool, *yaml.Node or entries
	comment string
}

// entries is a mapping. Entries without a value are left out.
type entries []entry

// node returns a value of a manifest as a YAML node.
func node(value any) *yaml.Node {
	switch v := value.(type) {
	case *yaml.Node:
		return v
	case entries:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, e := range v {
			if e.value == nil {
				continue
			}
			key, inner := text(e.key), node(e.value)
			switch {
			case e.comment == "":
			case inner.Kind == yaml.ScalarNode && inner.Style != yaml.LiteralStyle:
				inner.LineComment = "# " + e.comment
			default:
				key.HeadComment = "# " + e.comment
			}
			n.Content = append(n.Content, key, inner)
		}
		return n
	case int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(v)}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case string:
		return text(v)
	}
	panic("unsupported type in a manifest")
}

// text returns a string node. Several lines are written as a literal block. Strings such as yes are
// quoted, because readers of YAML 1.1, such as kubectl, parse them as booleans.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch {
	case yamledit.Plain(s, true):
	case block(s):
		n.Style = yaml.LiteralStyle
	default:
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// block reports whether a text can be written as a literal block.
func block(s string) bool {
	odd := func(r rune) bool { return r != '\n' && (!unicode.IsPrint(r) || r == utf8.RuneError) }
	return strings.Contains(s, "\n") && !strings.ContainsAny(s[:1], " \n") && !strings.Contains(s, " \n") && strings.IndexFunc(s, odd) < 0
}

// list returns a sequence.
func list(items ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, item := range items {
		n.Content = append(n.Content, node(item))
	}
	return n
}

// flow returns a value in flow style.
func flow(value any) *yaml.Node {
	n := node(value)
	n.Style = yaml.FlowStyle
	return n
}

// write writes documents, each with its comment above.
func write(comments []string, docs []entries) ([]byte, error) {
	var b bytes.Buffer
	for i, doc := range docs {
		if i > 0 {
			b.WriteString("---\n")
		}
		b.WriteString("# " + comments[i] + "\n")
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		if err := enc.Encode(node(doc)); err != nil {
			return nil, err
		}
		if err := enc.Close(); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
