package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// unmatched returns messages about stager annotations that apply to no pod template, and about keys
// whose prefix is nearly stager's. No other program would report them.
func (o *object) unmatched() (all []string) {
	heard := make(map[*yamledit.Node]bool)
	for _, t := range o.templates {
		for _, n := range t.chain[len(o.around):] {
			if n.Kind == yamledit.Mapping {
				heard[n.Get("metadata")] = true
			}
		}
	}
	var names []string         // that apply to no template
	var unnamed *yamledit.Node // a container that only lacks a name
	w := walker{chain: make([]*yamledit.Node, 0, depthOfNodes), steps: make([]step, 0, depthOfNodes), visit: func(n *yamledit.Node) bool {
		if n.Kind != yamledit.Mapping {
			return true
		}
		if unnamed == nil {
			unnamed = nameless(n)
		}
		for _, list := range []string{"annotations", "labels"} {
			group := n.Get(list)
			if group == nil || group.Kind != yamledit.Mapping {
				continue
			}
			for _, p := range group.Pairs {
				switch key := p.Key.Text(); {
				case nearlyOurs(key):
					all = append(all, fmt.Sprintf("the %s %s is not one of stager's, which begin with %s", strings.TrimSuffix(list, "s"), key, prefix))
				case list == "annotations" && asks(key) && !heard[n] && !forTheWebhook(n):
					names = append(names, key)
				}
			}
		}
		return true
	}}
	w.walk(o.root)
	if len(names) == 0 {
		return all
	}
	slices.Sort(names)
	list := strings.Join(slices.Compact(names), ", ")
	if len(o.templates) > 0 {
		return append(all, fmt.Sprintf("%s has no pod template below it; move it to the annotations of the pod template or of the object", list))
	}
	if unnamed != nil && (!o.opaque() || o.podSpecAt() != "") {
		line, _ := unnamed.Position()
		return append(all, fmt.Sprintf("%s has no effect on this %s: the container at line %d has no name; write one, such as name: main", list, o.kind, line))
	}
	if reason := o.passedBy(); reason != "" {
		return append(all, fmt.Sprintf("%s has no effect on this %s: %s", list, o.kind, reason))
	}
	return append(all, fmt.Sprintf("%s has no effect: %s has no pod template here; if its controller copies labels and annotations to its pods, add the label %s: \"true\" beside them for the admission webhook, or select the pod template with --path",
		list, article(o.kind), LabelInject))
}

// asks reports whether an annotation requests data.
func asks(key string) bool {
	return key == AnnotationPlan || key == AnnotationPlanYAML || strings.HasPrefix(key, AnnotationInput) || strings.HasPrefix(key, AnnotationOutput)
}

// forTheWebhook reports whether metadata has the label with which the webhook injects the pods
// later.
func forTheWebhook(metadata *yamledit.Node) bool {
	return metadata.Get("labels").Get(LabelInject).Text() == "true"
}

// labelAlone returns a message if a template has the webhook's label and requests no data.
func (t *template) labelAlone() []string {
	if !forTheWebhook(t.node.Get("metadata")) {
		return nil
	}
	return []string{fmt.Sprintf("it has the label %s: \"true\", and no annotation defines which data it needs; add %sNAME, %sNAME or %s", LabelInject, AnnotationInput, AnnotationOutput, AnnotationPlan)}
}

// nearlyOurs reports whether the prefix of a key resembles stager's.
func nearlyOurs(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	near := strings.HasPrefix(domain, "stager") || distance(domain+"/", prefix) <= 2
	return ok && near && domain+"/" != prefix
}

// distance returns the edit distance (Levenshtein) of a and b in bytes. It returns 3 if their
// lengths differ by more than 2.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			before, row[j+1] = row[j+1], min(before+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
