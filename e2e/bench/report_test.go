package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReportIsReadBackEqual(t *testing.T) {
	starved := 0.25
	want := Report{
		Start: Start{
			Machine: Machine{CPU: "any <CPU>", Cores: 2, Kernel: "6.1", Go: "go1", Stager: "stager 1", Memory: 1 << 34},
			Date:    time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC), Pairs: 5, Only: "goals", Row: "memory", Beside: "stager 0", Size: 1, Files: 2, FileSize: 3,
		},
		Results: []Result{
			{
				Store: "s3", Work: "get 1 GiB", Peer: "s5cmd", Bytes: 1 << 30, Files: 3,
				Ours: Sample{Wall: 1, CPU: 2, RSS: 3, Reading: &Reading{Images: 1, Starved: &starved}}, Theirs: Sample{Wall: 4}, Ratios: Ratios{4, 4.5},
				OurRuns: Runs{Wall: []float64{1, 1.5}, CPU: []float64{2, 2.5}}, TheirRuns: Runs{Wall: []float64{4, 4.25}, CPU: []float64{5, 5.5}},
				Goal: Goal{Ratio: 5}, Missed: []string{"wall 4.00×"},
			},
			{Store: "nfs", Work: "put 1 GiB", Peer: "cp"},
		},
		Listings: []Listing{{Objects: 1_000_000, Order: "name"}},
		Notes:    []string{"goals: a note\nof two lines"},
	}
	var lines bytes.Buffer
	entries := []Entry{{Start: &want.Start}, {Result: &want.Results[0]}, {Result: &want.Results[1]}, {Listing: &want.Listings[0]}, {Note: want.Notes[0]}}
	for i, e := range entries {
		if err := e.Write(&lines); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(lines.String(), "\n"); got != i+1 {
			t.Fatalf("%d entries are %d lines", i+1, got)
		}
	}
	file := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadReport(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestReportErrorNamesFileAndLine(t *testing.T) {
	const start = `{"start":{"cpu":"any"}}` + "\n"
	for text, line := range map[string]string{
		"":                                      "line 1",
		"not JSON\n":                            "line 1",
		`{"machine":{"cpu":"any"}}`:             "line 1",
		start + `{"note":"cut off`:              "line 2",
		start + `{"note":"a"}` + "\n" + start:   "line 3",
		start + `{"result":{"store":1}}` + "\n": "line 2",
	} {
		file := filepath.Join(t.TempDir(), "a.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadReport(file)
		if want := file + ": " + line + " is not what bench -json writes; it writes one JSON object a line, the first with the machine"; err == nil || err.Error() != want {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
	if _, err := ReadReport(filepath.Join(t.TempDir(), "missing")); !os.IsNotExist(err) {
		t.Errorf("a missing file: got error %v, want one that says so", err)
	}
}

// Each run counts in the result, but for the pair that warms up.
func TestResultHasAllRuns(t *testing.T) {
	got := runsOf([]Sample{{Wall: time.Second, CPU: 2 * time.Second}, {Wall: 3 * time.Second, CPU: 4 * time.Second}})
	if want := (Runs{Wall: []float64{1, 3}, CPU: []float64{2, 4}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got runs %v, want %v", got, want)
	}
}
