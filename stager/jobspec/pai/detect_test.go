package pai

import (
	"os"
	"path/filepath"
	"testing"
)

func TestVersionDistinguishesJobsFromObjects(t *testing.T) {
	for text, want := range map[string]int{
		"":                              0,
		"protocolVersion: 2\nname: x\n": 2,
		"# a job\nname: x\nprotocolVersion: \"2\"\ntaskRoles: {}\n":                            2,
		`{"protocolVersion": 2, "taskRoles": {}}`:                                              2,
		`{"jobName": "x", "taskRoles": []}`:                                                    1,
		"// old\n{\n  \"jobName\": \"x\",\n  \"taskRoles\": [{}],\n}":                          1,
		"apiVersion: v1\nkind: Pod\n":                                                          0,
		"kind: Framework\napiVersion: x/v1\nspec:\n  taskRoles: []\n":                          0,
		`{"apiVersion": "x/v1", "kind": "Framework", "taskRoles": []}`:                         0,
		"protocolVersion: 2\ntaskRoles:\n  a:\n    commands:\n    - |\n      apiVersion: v1\n": 2,
		"apiVersion: v1\nkind: ConfigMap\ndata:\n  job: |\n    protocolVersion: 2\n":           0,
	} {
		if got := Version([]byte(text)); got != want {
			t.Errorf("%q is of version %d, want %d", text, got, want)
		}
	}
	for pattern, want := range map[string]int{"testdata/*.jsonc": 1, "testdata/second.yaml": 2, "../../../examples/*.pai.yaml": 2, "../../../examples/window.yaml": 0} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := Version(text); got != want {
				t.Errorf("%s is of version %d, want %d", file, got, want)
			}
		}
	}
}
