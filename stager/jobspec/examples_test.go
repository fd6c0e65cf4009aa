package jobspec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// Every manifest in the documentation is injected without a warning and under all guarantees. Its
// objects match Kubernetes' own types.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := filepath.Glob("../../examples/kinds/*.yaml")
	if err != nil || len(kinds) == 0 {
		t.Fatalf("there are %d examples of kinds, %v", len(kinds), err)
	}
	files = append(files, kinds...)
	if len(files) < 10 {
		t.Fatalf("there are %d examples; where did they go?", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, ".prices.yaml") || strings.HasSuffix(file, ".pai.yaml") {
				return // tested by stager/explain and stager/jobspec/pai
			}
			if strings.HasSuffix(file, ".plan.yaml") {
				if _, err := plan.Parse(text, nil); err != nil {
					t.Error(err)
				}
				return
			}
			result, err := Inject(text, Options{})
			if err != nil {
				t.Fatal(err)
			}
			injected := 0
			for _, o := range result.Objects {
				if o.Action == Injected {
					injected++
				}
				if len(o.Warnings) > 0 && !expectedWarning(file, o.Warnings) {
					t.Errorf("%s: %q, want no warning", o, o.Warnings)
				}
			}
			if injected == 0 {
				t.Errorf("nothing was injected: %+v", result.Objects)
			}
			holds(t, text, Options{})
			decodes(t, result.Output)
		})
	}
}

// Every kind of the table has an example in examples/kinds that is injected.
func TestExamplesHaveEveryKind(t *testing.T) {
	files, err := filepath.Glob("../../examples/kinds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	injected := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, err := Inject(text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range yamledit.Split(result.Output) {
			if err := yamledit.Parse(d); err != nil {
				t.Fatal(err)
			}
			for _, o := range objectsIn(d) {
				o.findTemplates("")
				for _, template := range o.templates {
					if template.own(AnnotationUndo) != nil {
						injected[o.group()+" "+o.kind] = true
					}
				}
			}
		}
	}
	for _, row := range table {
		for _, kind := range row.kinds {
			if !injected[row.group+" "+kind] {
				t.Errorf("no example has the kind %s of the group %q", kind, row.group)
			}
		}
	}
}

// expectedWarning reports whether the only warning of an example is the one in its comment.
func expectedWarning(file string, warnings []string) bool {
	return filepath.Base(file) == "knative.yaml" && len(warnings) == 1 && strings.HasPrefix(warnings[0], "Knative takes init containers")
}
