package jobspec

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// FuzzInject checks the guarantees of every injected file, and compares it with what a widely
// trusted library reads: without the injected parts, the file has the same content.
func FuzzInject(f *testing.F) {
	files, _ := filepath.Glob("testdata/golden/*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, k := range kinds {
		f.Add([]byte(k.text))
	}
	f.Add([]byte(job(train, "      volumes: # none\n      terminationGracePeriodSeconds:", "        env: ~")))
	f.Add([]byte(job(train, "      volumes:\n        - name: a\n          emptyDir: {}\n\n      # end", "        command: [\n          a, # why\n          b,\n        ]")))
	f.Add([]byte("kind: Pod\r\nspec:\r\n  containers:\r\n  - name: a\r\n    args: |+\r\n      x\r\n\r\n"))
	f.Add([]byte("\xef\xbb\xbfkind: Pod\nspec: {containers: [{name: a}]}"))
	f.Add([]byte("{\n\t\"kind\": \"Pod\",\n\t\"spec\": {\n\t\t\"containers\": [\n\t\t\t{\"name\": \"a\", \"env\": []}\n\t\t],\n\t\t\"volumes\": []\n\t}\n}"))
	f.Fuzz(func(t *testing.T, x []byte) {
		for _, opts := range []Options{
			{Plan: []byte(onePlan), JobPolicies: true, AdjustMemory: true},
			{Plan: []byte(onePlan + "  outputs: [{name: o, path: /out, destination: \"s3://b/\"}]\n"), Gate: GateNone},
			{Plan: []byte(onePlan), Finalize: FinalizeWrap, PodSecurity: Restricted},
		} {
			holds(t, x, opts)
			result, err := Inject(x, opts)
			if err != nil {
				continue
			}
			without, err := Uninject(x) // the input may be an injected file
			if err != nil {
				t.Fatal(err)
			}
			before, after := objectsOf(without.Output), objectsOf(result.Output)
			switch {
			case before == nil: // the library cannot parse it
			case after == nil:
				t.Fatalf("after Inject nobody can read it:\n%s", result.Output)
			case !contains(after, before):
				t.Errorf("what was said is not said any more:\n%s\nwas\n%s", result.Output, without.Output)
			}
		}
	})
}

// objectsOf returns all documents as the library parses them, or nil if it cannot.
func objectsOf(file []byte) (all []any) {
	all = []any{}
	for _, d := range yamledit.Split(file) {
		var v any
		if yaml.Unmarshal(d.Text, &v) != nil {
			return nil
		}
		all = append(all, v)
	}
	return all
}

// replaced are the fields whose values inject replaces.
var replaced = map[string]bool{
	"terminationGracePeriodSeconds": true, "command": true, "memory": true, "ephemeral-storage": true, "stager.dev/status": true, "stager.dev/undo": true,
}

// contains reports whether a contains b. a may have more keys, and more items between those of a
// list.
func contains(a, b any) bool {
	switch b := b.(type) {
	case map[string]any:
		a, _ := a.(map[string]any)
		for key, value := range b {
			if !replaced[key] && !contains(a[key], value) {
				return false
			}
		}
		return true
	case []any:
		a, _ := a.([]any)
		for _, item := range b {
			for len(a) > 0 && !contains(a[0], item) {
				a = a[1:]
			}
			if len(a) == 0 {
				return false
			}
			a = a[1:]
		}
		return true
	case nil:
		return true
	}
	return reflect.DeepEqual(a, b)
}
