package pai

import (
	"bytes"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stager-dev/stager/stager/jobspec"
)

// tabbed matches a line that is indented with a tab.
var tabbed = regexp.MustCompile(`^[ ]*\t`)

// explainedYAML adds the column to a YAML syntax error, and a remedy if the cause is known.
func (r *reader) explainedYAML(f jobspec.Fault) jobspec.Fault {
	lines := bytes.Split(r.text, []byte("\n"))
	if f.Line < 1 || f.Line > len(lines) {
		return f
	}
	for at := f.Line; at <= min(f.Line+1, len(lines)); at++ { // the parser sometimes reports the previous line
		if tab := tabbed.Find(lines[at-1]); tab != nil {
			f.Line, f.Column = at, len(tab)
			f.Text = "this line is indented with a tab; use spaces"
			return f
		}
	}
	line := lines[f.Line-1]
	f.Column = 1 + len(line) - len(bytes.TrimLeft(line, " "))
	if strings.HasSuffix(f.Text, noColon) {
		f.Text = "this is not YAML: a key with a colon is expected here"
	}
	return f
}

// noColon is the parser's message for a line of a mapping without a key.
const noColon = "could not find expected ':'"

// twice adds faults for duplicate keys of a mapping: which of them applies depends on the reader.
func (v *version2) twice(n *yaml.Node) {
	seen := make(map[string]bool)
	for i, each := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[each.Value] && each.Kind == yaml.ScalarNode {
				v.wrong(each, "duplicate %s; write it once", each.Value)
			}
			seen[each.Value] = true
		}
		v.twice(each)
	}
}
