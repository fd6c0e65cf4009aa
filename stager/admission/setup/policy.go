package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec"
)

// samplePod is a minimal pod of an Indexed Job. What inject adds to it is what a policy adds to
// every pod.
const samplePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"sample",
"labels":{"batch.kubernetes.io/job-name":"sample","batch.kubernetes.io/job-completion-index":"0"}},
"spec":{"containers":[{"name":"main","image":"sample"}]}}`

// PolicyError reports that a policy cannot express a plan.
type PolicyError struct{ Text string }

func (e *PolicyError) Error() string { return e.Text }

// Policy returns a MutatingAdmissionPolicy of Kubernetes 1.36 and its binding. They inject stager
// with one plan into the pods of Jobs that have the label stager.dev/plan: NAME. The first
// container is the one that uses the data. A policy can neither read plans from annotations nor
// adapt to a pod: the warnings list what a pod must define itself.
func Policy(name string, plan []byte, opts jobspec.Options) (manifest []byte, warnings []string, err error) {
	if opts.Finalize == jobspec.FinalizeWrap || opts.Finalize == jobspec.FinalizeRun {
		return nil, nil, &PolicyError{opts.Finalize + " wraps each job's command, which a policy cannot do; use --finalize=sidecar, or the webhook"}
	}
	opts.Plan, opts.Admission = plan, true
	result, err := jobspec.Inject([]byte(samplePod), opts)
	if err != nil {
		return nil, nil, err
	}
	var pod struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec map[string]any `json:"spec"`
	}
	d := json.NewDecoder(bytes.NewReader(result.Output))
	d.UseNumber()
	if err := d.Decode(&pod); err != nil {
		return nil, nil, err
	}
	for _, o := range result.Objects {
		warnings = append(warnings, o.Warnings...)
	}
	var out bytes.Buffer
	err = templates.ExecuteTemplate(&out, "policy.yaml", map[string]any{
		"Name": name, "Expression": strings.ReplaceAll(expression(pod.Spec, pod.Metadata.Annotations[jobspec.AnnotationStatus]), "\n", "\n        "),
	})
	return out.Bytes(), warnings, err
}

// expression returns the CEL expression that adds the injected parts of the sample's spec.
func expression(spec map[string]any, status string) string {
	main := spec["containers"].([]any)[0].(map[string]any) // from samplePod
	delete(spec, "containers")
	terms := []string{addTo("object.metadata", "/metadata", "annotations", map[string]any{jobspec.AnnotationStatus: status})}
	for _, key := range slices.Sorted(maps.Keys(spec)) {
		terms = append(terms, addTo("object.spec", "/spec", key, spec[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(main)) {
		if key != "name" && key != "image" {
			terms = append(terms, addTo("object.spec.containers[0]", "/spec/containers/0", key, main[key]))
		}
	}
	return strings.Join(terms, " +\n")
}

// addTo returns the CEL term that adds a value at a key of owner and preserves what the pod has
// there.
func addTo(owner, path, key string, value any) string {
	here, empty := path+"/"+key, any(nil)
	var each []string
	conditional := ""
	switch v := value.(type) {
	case []any:
		empty = []any{}
		for i, item := range v {
			at := "-"
			if key == "initContainers" { // before the job's own
				at = strconv.Itoa(i)
			}
			each = append(each, add(here+"/"+at, item))
		}
	case map[string]any:
		empty = map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			term := add(here+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), v[name])
			if key == "securityContext" { // the pod's own values take precedence
				conditional += fmt.Sprintf(" +\n(has(%s.%s) && has(%s.%s.%s) ? [] : [%s])", owner, key, owner, key, name, term)
				continue
			}
			each = append(each, term)
		}
	case json.Number: // a minimum, such as the grace period
		return fmt.Sprintf("(has(%s.%s) && %s.%s >= %s ? [] : [%s])", owner, key, owner, key, v, add(here, v))
	default:
		return "[" + add(here, v) + "]"
	}
	begin := fmt.Sprintf("(has(%s.%s) ? [] : [%s])", owner, key, add(here, empty))
	if len(each) == 0 {
		return begin + conditional
	}
	return begin + fmt.Sprintf(" + [\n  %s\n]", strings.Join(each, ",\n  ")) + conditional
}

func add(path string, value any) string {
	return fmt.Sprintf("JSONPatch{op: %q, path: %s, value: %s}", "add", literal(path), literal(value))
}

// literal returns a value in CEL. CEL maps and lists need items of one type, so each item is
// converted with dyn.
func literal(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var items []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, literal(key)+": dyn("+literal(v[key])+")")
		}
		return "{" + strings.Join(items, ", ") + "}"
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, "dyn("+literal(item)+")")
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	text, _ := json.Marshal(v) // a scalar
	return string(text)
}
