package jobspec

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stager-dev/stager/stager/jobspec/corpus"
)

// corpusOptions are two extremes: minimal options, and options that replace as many values as
// possible.
var corpusOptions = map[string]Options{
	"window": {Plan: []byte(corpusPlan), JobPolicies: true, AdjustMemory: true},
	"wrap":   {Plan: []byte(corpusPlan + "  outputs: [{name: corpus-out, path: /corpus/out, destination: \"s3://b/\"}]\n"), AdjustMemory: true},
}

const corpusPlan = `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: corpus}
spec:
  inputs: [{name: corpus-in, source: "s3://b/in/", path: /corpus/in}]
`

func corpusFiles(t testing.TB) []corpus.File {
	t.Helper()
	files, err := corpus.Files()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 200 {
		t.Fatalf("the corpus has %d files, want 200 at least", len(files))
	}
	return files
}

// A second injection changes nothing, and Uninject restores every byte.
func TestCorpusIsReversible(t *testing.T) {
	injected, refused := 0, 0
	for _, f := range corpusFiles(t) {
		for name, opts := range corpusOptions {
			result, err := Inject(f.Text, opts)
			if err != nil {
				refused++
				t.Logf("%s, %s: refused: %v", f.Name, name, err)
				continue
			}
			if !bytes.Equal(result.Output, f.Text) {
				injected++
			}
			t.Run(f.Name+" "+name, func(t *testing.T) { holds(t, f.Text, opts) })
		}
	}
	t.Logf("%d injected, %d refused", injected, refused)
	if injected < 400 || refused > injected/20 {
		t.Errorf("%d injected and %d refused, want 400 at least and few", injected, refused)
	}
}

// Any program may rewrite an injected file. The file is still up to date, Inject can update it, and
// Uninject restores the original as objects.
func TestCorpusIsReversibleAfterItIsRewritten(t *testing.T) {
	rewritten, injected := 0, 0
	for _, f := range corpusFiles(t) {
		if style := f.Style(); style != "" && style != "open" && style != "json" {
			continue // a writer below generates these from the others
		}
		for name, opts := range corpusOptions {
			result, err := Inject(f.Text, opts)
			if err != nil || bytes.Equal(result.Output, f.Text) {
				continue
			}
			original, err := Uninject(f.Text)
			if err != nil {
				t.Fatal(err)
			}
			injected++
			for i, w := range corpus.Writers {
				if testing.Short() && (injected+i)%3 != 0 {
					continue // another file is for this writer
				}
				rewritten++
				if err := survives(original.Output, result.Output, w, opts); err != nil {
					t.Errorf("%s, %s, written by %s: %v", f.Name, name, w.Name, err)
				}
			}
		}
	}
	t.Logf("%d rewritten files", rewritten)
}

// survives rewrites an injected file and then performs the usual operations on it.
func survives(original, injected []byte, w corpus.Writer, opts Options) error {
	text, err := w.Rewrite(injected)
	if err != nil {
		return err
	}
	if original, err = w.Rewrite(original); err != nil {
		return err
	}
	stale, err := Check(text, opts)
	if err != nil {
		return err
	}
	if len(stale) > 0 {
		return fmt.Errorf("%v is out of date:\n%s", stale, text)
	}
	again, err := Inject(text, opts)
	if err != nil {
		return err
	}
	if !bytes.Equal(again.Output, text) {
		return fmt.Errorf("injected again it differs: %s", cmp.Diff(string(text), string(again.Output)))
	}
	other := opts
	other.Image = "another"
	if again, err = Inject(text, other); err != nil {
		return err
	}
	if bytes.Equal(again.Output, text) {
		return fmt.Errorf("another image changes nothing")
	}
	want, fromFirst := objectsOf(original), objectsOf(mustInject(original, other))
	if got := objectsOf(again.Output); !reflect.DeepEqual(withoutRecords(got), withoutRecords(fromFirst)) {
		return fmt.Errorf("injected again with another image it differs from the original injected so: %s", cmp.Diff(fromFirst, got))
	}
	for _, file := range [][]byte{text, again.Output} {
		back, err := Uninject(file)
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, file)
		}
		if got := objectsOf(back.Output); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("uninjected it differs: %s\n%s", cmp.Diff(want, got), back.Output)
		}
	}
	return nil
}

func mustInject(file []byte, opts Options) []byte {
	result, err := Inject(file, opts)
	if err != nil {
		panic(err)
	}
	return result.Output
}

// withoutRecords removes the annotations for Uninject, which depend on the text.
func withoutRecords(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any)
		for key, value := range v {
			if key != AnnotationUndo {
				m[key] = withoutRecords(value)
			}
		}
		return m
	case []any:
		var items []any
		for _, item := range v {
			items = append(items, withoutRecords(item))
		}
		return items
	}
	return v
}

// Uninject preserves a user's change to a value that inject changed too. A change after the part
// that inject put before a command becomes the command. Any other changed value stays, with a
// warning.
func TestUninjectKeepsLaterChanges(t *testing.T) {
	file := job(saves, "      terminationGracePeriodSeconds: 60", "        command: [python, train.py]")
	injected := string(mustInject([]byte(file), Options{JobPolicies: true}))
	for _, tt := range []struct{ name, old, new, want, warning string }{
		{"an argument", "- train.py\n", "- train.py\n        - --lr=2\n", `command: [python, train.py, "--lr=2"]`, ""},
		{"another grace", "PeriodSeconds: 630", "PeriodSeconds: 700", "terminationGracePeriodSeconds: 700", "spec.terminationGracePeriodSeconds was changed again"},
	} {
		if strings.Count(injected, tt.old) != 1 {
			t.Fatalf("%s: %q is not in it once:\n%s", tt.name, tt.old, injected)
		}
		back, err := Uninject([]byte(strings.Replace(injected, tt.old, tt.new, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if warnings := fmt.Sprint(back.Objects[0].Warnings); !strings.Contains(string(back.Output), tt.want) || (tt.warning == "") != (warnings == "[]") || !strings.Contains(warnings, tt.warning) {
			t.Errorf("%s: got warnings %s and\n%s\nwant %q and %q", tt.name, warnings, back.Output, tt.warning, tt.want)
		}
	}
}

// An alias has no known value after a program has expanded its anchor.
func TestUninjectRefusesLostAliases(t *testing.T) {
	file := job(saves, "", "        command: [&p python, *p]")
	injected := mustInject([]byte(file), Options{JobPolicies: true})
	rewritten, err := corpus.Writers[0].Rewrite(injected)
	if err != nil {
		t.Fatal(err)
	}
	result, err := Uninject(rewritten)
	want := "another program has rewritten this document since inject"
	if result != nil || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, %v, want %q", result, err, want)
	}
}

// The webhook injects a Pod as compact JSON. Uninject works on the YAML that kubectl prints of it.
func TestUninjectAfterTheWebhook(t *testing.T) {
	for _, name := range []string{"pod-admission", "pod-argo"} {
		in, err := os.ReadFile("testdata/golden/" + name + ".in.json")
		if err != nil {
			t.Fatal(err)
		}
		opts := goldenOptions[name+".in.json"]
		pod, err := corpus.Writers[4].Rewrite(in)
		if err != nil || bytes.ContainsRune(pod, '\n') {
			t.Fatalf("%s: this is not compact: %v\n%s", name, err, pod)
		}
		printed, err := corpus.Writers[0].Rewrite(mustInject(pod, opts))
		if err != nil {
			t.Fatal(err)
		}
		back, err := Uninject(printed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(objectsOf(in), objectsOf(back.Output)); diff != "" || bytes.Equal(back.Output, printed) {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
