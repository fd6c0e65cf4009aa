package pai

import (
	"bytes"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/stager-dev/stager/stager/jobspec"
)

// tabbed matches a line that is indented with a tab.
var tabbed = regexp.MustCompile(`^[ ]*\t`)

// indented adds to a YAML syntax error that the line is indented with a tab, if it is.
func (r *reader) indented(f jobspec.Fault) jobspec.Fault {
	lines := bytes.Split(r.text, []byte("\n"))
	for at := f.Line; at > 0 && at <= min(f.Line+1, len(lines)); at++ { // the parser sometimes reports the previous line
		if tab := tabbed.Find(lines[at-1]); tab != nil {
			f.Line, f.Column = at, len(tab)
			f.Text = "a tab indents this line; YAML wants spaces"
			break
		}
	}
	return f
}

// twice adds faults for duplicate keys of a mapping: which of them applies depends on the reader.
func (v *version2) twice(n *yaml.Node) {
	seen := make(map[string]bool)
	for i, each := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[each.Value] && each.Kind == yaml.ScalarNode {
				v.wrong(each, "%s is there twice; keep one", each.Value)
			}
			seen[each.Value] = true
		}
		v.twice(each)
	}
}
