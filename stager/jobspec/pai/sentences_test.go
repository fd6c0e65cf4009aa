package pai

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/jobspec"
)

// Invalid input of either format is refused with one sentence that has a position, and without a
// manifest. The test has the sentences exactly as users see them.
func TestBadInputIsRefusedInOneSentence(t *testing.T) {
	replaced := func(old, with string) string {
		if !strings.Contains(second, old) {
			t.Fatalf("the job has no %q", old)
		}
		return strings.Replace(second, old, with, 1)
	}
	for _, tt := range []struct{ what, file, want string }{
		{"an unknown parameter", replaced("$parameters.epochs %> --out", "$parameters.epoch %> --out"), `line 31, column 9: <% $parameters.epoch %> is not defined; define it`},
		{"a cyclic reference", replaced("base: lenet", "base: <% $parameters.model.name %>"), `line 7, column 31: references are nested more than 16 levels deep; remove the cycle`},
		{"a missing secret", replaced("{password: s3cret}", "{}"), `line 11, column 117: <% $secrets.password %> is not defined; define it`},
		{"a template", replaced("name: mnist_train", "name: {{ .Values.name }}"), `line 2, column 7: this is a template of another program; render {{…}} with that program first`},
		{"a template in a flow", replaced("uri: busybox}", "uri: {{image}}}"), `line 12, column 43: this is a template of another program; render {{…}} with that program first`},
		{"a tab", replaced("  ps-server:", "\tps-server:"), `line 15, column 1: this line is indented with a tab; use spaces`},
		{"5 MB", second + "# " + strings.Repeat("x", 5<<20) + "\n", `the file has 5244453 bytes, and the limit is 3145728; move long scripts and data out of the job`},
		{"5 MB of the first format", `{"jobName": "` + strings.Repeat("x", 5<<20) + `"}`, `the file has 5242895 bytes, and the limit is 3145728; move long scripts and data out of the job`},
		{"a template in the first format", strings.Replace(one("", ""), `"w"`, `{{role}}`, 1), `line 1, column 56: this is a template of another program; render {{…}} with that program first`},
		{"a tab in the first format", strings.Replace(one("", ""), `"run"`, "\"run\tfast\"", 1), `line 1, column 144: a string contains a tab, which JSON does not allow; write \t`},
		{"colliding ports", one("", `"portList": [{"label": "a", "beginAt": 8000, "portNumber": 10}, {"label": "b", "beginAt": 8005, "portNumber": 1}],`), `line 1, column 192: task role w: the ports a and b both contain 8005; change one of them, or write beginAt: 0 to have any port`},
		{"a port label twice", replaced("ports: {grpc: 2}", "ports: {grpc: 2, grpc: 3}"), `line 28, column 76: duplicate grpc; write it once`},
		{"an unknown deployment", replaced("deployment: prod", "deployment: dev"), `line 36, column 45: the deployment "dev" does not exist; the deployments are: prod`},
	} {
		t.Run(tt.what, func(t *testing.T) {
			result, err := Convert([]byte(tt.file), Options{})
			if result != nil {
				t.Errorf("got manifests of %d bytes besides, want none", len(result.Output))
			}
			var faults jobspec.Faults
			if !errors.As(err, &faults) || len(faults) != 1 || fmt.Sprint(err) != tt.want {
				t.Errorf("got %.700v\nwant %s", err, tt.want)
			}
		})
	}
}

// A role whose name is invalid in Kubernetes is renamed. Its tasks still receive the original name.
func TestLongRoleNamesAreMapped(t *testing.T) {
	long := strings.Repeat("r", 300)
	for what, file := range map[string]string{
		"first":  strings.Replace(one("", ""), `"w"`, `"`+long+`"`, 1),
		"second": strings.Replace(single("", "    commands: [run]\n"), "  w:\n", "  "+long+":\n", 1),
	} {
		out := string(convert(t, file, Options{Queue: NoQueue}).Output)
		if !strings.Contains(out, `PAI_CURRENT_TASK_ROLE_NAME, value: "`+long) {
			t.Errorf("%s format: the tasks do not learn the name of their role", what)
		}
	}
}
