package jobspec

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// long returns a text of n bytes.
func long(n int) string { return strings.Repeat("x", n) }

// Any input is either refused with a message that has a position, or injected under all guarantees.
// Nothing takes long, and there is no partial output.
func TestBadInput(t *testing.T) {
	pod := "kind: Pod\nmetadata: {name: x, annotations: {" + train + "}}\nspec:\n  containers:\n  - name: main\n    image: x\n"
	window := Options{Plan: []byte(onePlan)}
	for _, tt := range []struct {
		name, file string
		opts       Options
		want       string // "": it is injected
	}{
		{"Helm, a value", strings.Replace(pod, "image: x", "image: {{ .Values.image }}", 1), Options{}, "line 6, column 12: {{ begins a template of another program; render the file first"},
		{"Helm, a line", "kind: Pod\n{{- if .Values.gpu }}\nspec: {}\n{{- end }}\n", Options{}, "line 2, column 1: a key with a colon is expected here"},
		{"Helm, all of it", "{{ include \"pod\" . }}\n", Options{}, "line 1, column 1: {{ begins a template"},
		{"Helm, in quotes", strings.Replace(pod, "image: x", "image: '{{ .Values.image }}'", 1), Options{}, ""},
		{"Jinja", strings.Replace(pod, "image: x", "image: {% raw %}", 1), Options{}, "line 6, column 12: {% begins a template"},
		{"Argo's own", strings.Replace(pod, "image: x", `args: ["--lr={{inputs.parameters.lr}}"]`, 1), Options{}, ""},
		{"envsubst", strings.Replace(pod, "image: x", "image: ${IMAGE}", 1), Options{}, ""},
		{"a tab", strings.Replace(pod, "    image: x", "\timage: x", 1), Options{}, "line 6, column 1: this line is indented with a tab"},
		{"a tab in a text", strings.Replace(pod, "image: x", "command: [sh, -c, \"a\tb\"]", 1), Options{}, ""},
		{"Latin-1", strings.Replace(pod, "image: x", "image: caf\xe9", 1), Options{}, "line 6, column 15: the text is not UTF-8"},
		{"UTF-16", "\xff\xfek\x00i\x00n\x00d\x00", Options{}, "line 1, column 1: the text is not UTF-8"},
		{"a NUL", strings.Replace(pod, "image: x", "image: a\x00b", 1), Options{}, "line 6, column 13: a control character (U+0000) is not allowed"},
		{"cut off", pod + "    env: [{name: A, value: ", Options{}, "line 7, column 11: this { is not closed"},
		{"a cycle", "kind: Pod\nmetadata: {name: x, annotations: {" + train + "}}\nspec: &s\n  containers:\n  - name: main\n    env: [*s]\n", Options{}, "line 4, column 3: Pod/x: spec has the anchor &s, to which an alias elsewhere refers"},
		{"an alias to nothing", strings.Replace(pod, "image: x", "env: *e", 1), Options{}, "line 6, column 10: Pod/x: spec.containers.main.env is the alias *e"},
		{"deeper than anything", strings.Repeat("[", 100_000), Options{}, "nested more than 200 levels deep"},
		{"a list of lists", strings.Repeat("- ", 100_000) + "x", Options{}, "nested more than 200 levels deep"},
		{"two inputs for one path", strings.Replace(pod, train, train+`, stager.dev/in.val: "s3://b/val/ -> /data/train"`, 1), Options{}, "line 2, column 107: Pod/x: stager.dev/in.val: path: /data/train and /data/train (stager.dev/in.train: path) contain each other"},
		{"a name of 300 characters", strings.Replace(pod, "in.train", "in."+long(300), 1), Options{}, "line 2, column"},
		{"a role of 300 characters", `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}, spec: {replicatedJobs: [{name: ` + long(300) + `, template: {spec: {template: ` + podOf + `}}}]}}`, window, ""},
		{"a port that is taken", strings.Replace(strings.Replace(pod, train, saves, 1), "image: x", "ports: [{containerPort: 9090}]", 1), Options{Listen: ":9090"}, "line 6, column 29: Pod/x: container main has the port 9090, on which stager would listen (--pod-listen)"},
		{"a plan of 2 MB", "kind: ConfigMap\nmetadata: {name: p}\ndata:\n  plan.yaml: \"" + long(2<<20) + "\"\n---\n" + strings.Replace(pod, train, `stager.dev/plan: "configmap:p"`, 1), Options{}, "the plan has 2097152 bytes, and 102400 fit into a pod's environment"},
		{"a plan that is a bomb", strings.Replace(pod, train, `stager.dev/plan-yaml: "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]"`, 1), Options{}, "Pod/x: the plan is invalid"},
		{"a text of 5 MB", strings.Replace(pod, "image: x", "command: [sh, -c, \""+long(5<<20)+"\"]", 1), Options{}, ""},
		{"a line of 5 MB", long(5 << 20), Options{}, ""},
		{"a comment of 5 MB", "#" + long(5<<20) + "\n" + pod, Options{}, ""},
		{"1,000 documents", strings.Repeat(pod+"---\n", 1000), Options{}, ""},
		{"10,000 documents of nothing", strings.Repeat("---\n", 10_000) + pod, Options{}, ""},
		{"a key of 1 MB", long(1<<20) + ": x\n", Options{}, ""},
		{"a list of 100,000", "a:\n" + strings.Repeat("- b: c\n", 100_000) + "spec: {containers: [{name: a}]}\n", Options{}, ""},
		{"nothing", "", Options{}, ""},
		{"not even YAML", "\x7fELF\x02\x01\x01", Options{}, "line 1, column 5: a control character (U+0002) is not allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := processorTime(t) // does not depend on what else the machine does
			result, err := Inject([]byte(tt.file), tt.opts)
			if took := processorTime(t) - before; took > 10*time.Second {
				t.Errorf("it took %s of the processors, want far less than 10 s", took)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want it injected", shortened(err))
			case tt.want == "":
				if back, err := Uninject(result.Output); err != nil || !bytes.Equal(back.Output, []byte(tt.file)) {
					t.Errorf("uninjected it is another, or %v", err)
				}
			case err == nil || result != nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v\nwant %s", shortened(err), tt.want)
			case strings.Count(err.Error(), "\n") > 0 && !strings.Contains(tt.name, "plan"):
				t.Errorf("got %v, want one line", shortened(err))
			case len(err.Error()) > 2000:
				t.Errorf("the sentence has %d bytes: %v", len(err.Error()), shortened(err))
			}
		})
	}
}

func shortened(err error) string {
	text := fmt.Sprint(err)
	return text[:min(len(text), 500)]
}
