package plan

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/internal/golden"
)

// onlyS3 simulates a registry with a single protocol.
func onlyS3(url string) error {
	if !strings.HasPrefix(url, "s3://") || strings.ContainsAny(url, "{}") {
		return errors.New("not a URL of a known store")
	}
	return nil
}

// TestParse compares each plan of testdata with its meaning, or with the list of its errors.
func TestParse(t *testing.T) {
	files, err := filepath.Glob("testdata/plans/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no plans: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			plan, want := archive.Files[0].Data, &archive.Files[1].Data
			var got string
			if p, err := Parse(plan, onlyS3); err != nil {
				got = err.Error() + "\n"
			} else {
				got = string(marshal(t, p))
			}
			if *golden.Update {
				*want = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(*want), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseReportsLines(t *testing.T) {
	_, err := Parse([]byte("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata:\n  nam: x\nspec:\n  outputs: []\n"), nil)
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Fatalf("got %v, want two faults", err)
	}
	want := Fault{Path: "metadata.nam", Line: 4, Text: "unknown key; did you mean name?"}
	if faults[0] != want {
		t.Errorf("got %+v, want %+v", faults[0], want)
	}
}

func marshal(t *testing.T, p *StagePlan) []byte {
	t.Helper()
	text, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzParse checks that no input causes a panic, and that an accepted plan stays the same when it
// is written and parsed again.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/plans/*.txtar") // the pattern is valid
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := Parse(data, nil)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("a fault without words in %q", data)
			}
			return
		}
		text := marshal(t, first)
		second, err := Parse(text, nil)
		if err != nil {
			t.Fatalf("%q was read, but not what it was written as:\n%s\n%v", data, text, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%q changed by writing and reading (-first +second)\n%s", data, diff)
		}
		vars := Vars{}
		for _, v := range variables {
			vars[v.name] = v.name
		}
		if _, err := first.Expand(vars); err != nil {
			t.Logf("%v", err)
		}
	})
}
