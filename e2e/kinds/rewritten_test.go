package kinds

import (
	"bytes"
	"reflect"
	"testing"

	goccy "github.com/goccy/go-yaml"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/corpus"
	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

const plan = `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: corpus}
spec:
  inputs: [{name: corpus-in, source: "s3://b/in/", path: /corpus/in}]
  outputs: [{name: corpus-out, path: /corpus/out, destination: "s3://b/out/"}]
`

// goccyStyles are those of a library that shares no code with the ones that the product uses.
var goccyStyles = map[string][]goccy.EncodeOption{
	"plain":    nil,
	"indented": {goccy.Indent(4), goccy.IndentSequence(true)},
	"literal":  {goccy.UseLiteralStyleIfMultiline(true), goccy.UseSingleQuote(true)},
	"flow":     {goccy.Flow(true)},
	"json":     {goccy.JSON()},
}

// TestInjectedFilesRewrittenByAnotherLibrary takes the original, as objects, out of what was
// injected and then written anew.
func TestInjectedFilesRewrittenByAnotherLibrary(t *testing.T) {
	files, err := corpus.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	opts := jobspec.Options{Plan: []byte(plan), AdjustMemory: true}
	done, faulty := 0, 0
	for _, f := range files {
		result, err := jobspec.Inject(f.Text, opts)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		for style, options := range goccyStyles {
			text, err := rewrite(result.Output, options)
			if err != nil || !reflect.DeepEqual(objects(t, text), objects(t, result.Output)) {
				faulty++ // the library itself
				t.Logf("%s, %s: the library writes other objects, %v", f.Name, style, err)
				continue
			}
			done++
			if stale, err := jobspec.Check(text, opts); err != nil || len(stale) > 0 {
				t.Errorf("%s, %s: Check returns %v, %v, want nothing stale", f.Name, style, stale, err)
			}
			back, err := jobspec.Uninject(text)
			if err != nil {
				t.Errorf("%s, %s: %v", f.Name, style, err)
				continue
			}
			if got, want := objects(t, back.Output), objects(t, f.Text); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: got %v, want %v", f.Name, style, got, want)
			}
		}
	}
	t.Logf("%d files, and %d that the library writes wrong", done, faulty)
	if done < 4*faulty {
		t.Errorf("%d files were tested, and %d not", done, faulty)
	}
}

func rewrite(file []byte, options []goccy.EncodeOption) ([]byte, error) {
	var all [][]byte
	for _, d := range yamledit.Split(file) {
		var v any
		if err := goccy.Unmarshal(d.Text, &v); err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		text, err := goccy.MarshalWithOptions(v, options...)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return bytes.Join(all, []byte("---\n")), nil
}

// objects are those of a file, as the library of Kubernetes reads it; nil: it cannot.
func objects(t *testing.T, file []byte) (all []any) {
	t.Helper()
	for _, d := range yamledit.Split(file) {
		var v any
		if err := yaml.Unmarshal(d.Text, &v); err != nil {
			return nil
		}
		if v != nil {
			all = append(all, v)
		}
	}
	return all
}
