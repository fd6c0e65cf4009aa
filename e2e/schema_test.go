package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/plan"
)

// planSchema is the schema that editors use.
const planSchema = "../docs/schema/stageplan.json"

// schemaOf returns a function that returns what the schema says about a plan.
func schemaOf(t *testing.T) func(text []byte) error {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(planSchema)
	if err != nil {
		t.Fatal(err)
	}
	return func(text []byte) error {
		converted, err := yaml.YAMLToJSON(text)
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(converted))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
}

// planStart is the first line of a plan, also within another document.
var planStart = regexp.MustCompile(`^ *apiVersion: stager\.dev/v1alpha1$`)

// plansIn returns the plans of a text: lines from an apiVersion to the first that is indented less, or
// closes a block.
func plansIn(text string) (plans [][]byte) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if !planStart.MatchString(lines[i]) || i+1 == len(lines) || !strings.Contains(lines[i+1], "kind: StagePlan") {
			continue
		}
		indent := strings.Repeat(" ", strings.Index(lines[i], "apiVersion"))
		var found []string
		for ; i < len(lines) && (lines[i] == "" || strings.HasPrefix(lines[i], indent)) && !strings.HasPrefix(lines[i], "```") && !strings.HasPrefix(lines[i], "-- "); i++ {
			found = append(found, strings.TrimPrefix(lines[i], indent))
		}
		plans = append(plans, []byte(strings.Join(found, "\n")))
	}
	return plans
}

// editorLine is the line by which editors find the schema.
var editorLine = regexp.MustCompile(`(?m)^# yaml-language-server: \$schema=(\S+)$`)

// The plans of the examples, of the manual and of the tests of package plan are valid by the schema
// exactly if stager accepts them.
func TestSchemaAcceptsPlans(t *testing.T) {
	valid := schemaOf(t)
	accepted := 0
	check := func(name string, text []byte) {
		_, err := plan.Parse(text, nil)
		if got := valid(text); (got == nil) != (err == nil) {
			t.Errorf("%s: by the schema it has the error %v, by the parser %v\n%s", name, got, err, text)
		}
		if err == nil {
			accepted++
		}
	}
	for _, pattern := range []string{"../examples/*.yaml", "../examples/kinds/*.yaml", "../README.md", "../docs/*.md", "../docs/*/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range plansIn(string(text)) {
				if !strings.Contains(string(p), "…") && strings.Contains(string(p), "puts:") { // complete
					check(name, p)
				}
			}
			if strings.HasSuffix(name, ".plan.yaml") {
				line := editorLine.FindSubmatch(text)
				if line == nil || filepath.Join(filepath.Dir(name), string(line[1])) != planSchema {
					t.Errorf("%s: the line for editors is %q, want one with the schema %s", name, line, planSchema)
				}
			}
		}
	}
	files, err := filepath.Glob("../stager/plan/testdata/plans/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "/budget.txtar") || strings.HasSuffix(name, "/rolling.txtar") { // a sum of sizes; an empty key
			continue
		}
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		check(name, archive.Files[0].Data)
	}
	if accepted < 6 {
		t.Errorf("%d plans were valid, want 6 at least", accepted)
	}
}

// The broken plans of the test data are refused by the schema, and by stager run --dry-run with exit
// code 64 and one sentence: the test data have its path and its words.
func TestSchemaRefusesBrokenPlans(t *testing.T) {
	valid := schemaOf(t)
	archive, err := txtar.ParseFile("testdata/broken-plans.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) < 30 {
		t.Errorf("there are %d broken plans, want 30 at least", len(archive.Files))
	}
	const head = "apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: broken}\n"
	for _, f := range archive.Files {
		t.Run(strings.ReplaceAll(f.Name, " ", "-"), func(t *testing.T) {
			want, text, _ := strings.Cut(strings.TrimPrefix(string(f.Data), "# "), "\n")
			if !strings.HasPrefix(text, "apiVersion") {
				text = head + text
			}
			if err := valid([]byte(text)); err == nil {
				t.Error("the schema accepts it")
			}
			cmd := exec.CommandContext(t.Context(), world.stager, "run", "--dry-run", "-f", "-")
			var out, complaint bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &complaint
			_ = cmd.Run() // the code is looked at
			if code := cmd.ProcessState.ExitCode(); code != usageCode || out.Len() > 0 {
				t.Errorf("stager run --dry-run: got code %d and output %q, want %d and none", code, &out, usageCode)
			}
			got := regexp.MustCompile(`^  (line \d+: )?`).ReplaceAllString(strings.TrimPrefix(complaint.String(), "stager: invalid plan standard input:\n"), "")
			if got != want+"\n" {
				t.Errorf("got %q, want %q", got, want+"\n")
			}
		})
	}
}
