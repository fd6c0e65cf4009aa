package pai

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mostNested is the maximum depth of nested references.
const mostNested = 16

var (
	reference2 = regexp.MustCompile(`<%\s*(.*?)\s*%>`)
	step2      = regexp.MustCompile(`^(?:\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\])`)
)

// scope returns the names with which references of a task role may start. Outside of a role there
// are fewer.
func (v *version2) scope(role *yaml.Node) map[string]*yaml.Node {
	scope := map[string]*yaml.Node{"parameters": v.parameters, "secrets": v.secrets}
	for _, field := range []string{"script", "data", "output"} {
		scope[field] = v.prerequisite(role, field, field)
	}
	return scope
}

// expand replaces references such as <% $parameters.x %> and <% $data.uri[0] %>.
func (v *version2) expand(at *yaml.Node, text string, scope map[string]*yaml.Node, depth int) string {
	if depth > mostNested {
		v.wrong(at, "references are nested more than %d levels deep; remove the cycle", mostNested)
		return text
	}
	return reference2.ReplaceAllStringFunc(text, func(ref string) string {
		path := reference2.FindStringSubmatch(ref)[1]
		name, rest, ok := first(strings.TrimPrefix(path, "$"))
		if _, known := scope[name]; !ok || !known {
			v.wrong(at, "%s is not a reference; begin it with $parameters, $secrets, $script, $data or $output", ref)
			return ref
		}
		n := scope[name]
		for rest != "" && n != nil {
			m := step2.FindStringSubmatch(rest)
			if m == nil {
				v.wrong(at, "%s is not a reference; write it as <%% $parameters.NAME %%>", ref)
				return ref
			}
			rest = rest[len(m[0]):]
			n = step(n, m[1], m[2])
		}
		if n == nil {
			v.wrong(at, "%s is not defined; define it", ref)
			return ref
		}
		if n.Kind != yaml.ScalarNode {
			v.wrong(at, "%s is a list or a mapping; refer to one of its values", ref)
			return ref
		}
		return v.expand(n, n.Value, scope, depth+1)
	})
}

// first splits off the first element of a path.
func first(path string) (name, rest string, ok bool) {
	m := step2.FindStringSubmatch(path)
	if m == nil || m[1] == "" || strings.HasPrefix(path, ".") {
		return "", "", false
	}
	return m[1], path[len(m[0]):], true
}

// step returns a field of a mapping or an item of a list, or nil.
func step(n *yaml.Node, field, index string) *yaml.Node {
	if field != "" {
		return get(n, field)
	}
	i, err := strconv.Atoi(index)
	if err != nil || n.Kind == yaml.ScalarNode && i > 0 || n.Kind == yaml.SequenceNode && i >= len(n.Content) {
		return nil
	}
	if n.Kind == yaml.SequenceNode {
		return n.Content[i]
	}
	return n // a single uri is treated as a list with one item
}
