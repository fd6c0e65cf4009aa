package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A JSON log had "49 MiB" for bytes and nanoseconds for durations, which no program can compare
// with the metrics. A text log is for people, and keeps its units.
func TestLogsHaveNumbersForProgramsAndUnitsForPeople(t *testing.T) {
	say := func(format string) string {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		log, _ := logging{LogFormat: format}.open(file)
		log.Info("done", "bytes", backends.Size(49<<20), "rate", backends.Rate(3<<20), "took", 1500*time.Millisecond)
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got, want := say("text"), `bytes="49 MiB" rate="3.0 MiB/s" took=1.5s`; !strings.Contains(got, want) {
		t.Errorf("text: got %q, want %q in it", got, want)
	}
	var got struct{ Bytes, Rate, Took float64 }
	if err := json.Unmarshal([]byte(say("json")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Bytes != 49<<20 || got.Rate != 3<<20 || got.Took != 1.5 {
		t.Errorf("json: got %+v, want 51380224 bytes, 3145728 bytes/s and 1.5 s", got)
	}
}

// Bytes fetched by an earlier run were counted in this run's rate, and the bar of an interrupted
// run was filled to 100 %.
func TestPaceLeavesOutWhatWasThereBefore(t *testing.T) {
	now := time.Unix(0, 0)
	d := &display{clock: func() time.Time { return now }}
	d.update(moving{Bytes: 900 << 20, BytesTotal: 1000 << 20})
	if got := d.pace(); got != "" {
		t.Errorf("at the start: got %q, want nothing", got)
	}
	now = now.Add(5 * time.Second)
	d.update(moving{Bytes: 950 << 20, BytesTotal: 1000 << 20})
	if got, want := d.pace(), " 10 MiB/s 5s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// "run -f plan --lissten :9090" ran --lissten as the trainer's command.
func TestMistypedFlagIsNoCommand(t *testing.T) {
	_, err := runCmd{Command: []string{"--lissten", ":9090"}}.child()
	if got, want := codeFor(err), exitUsage; err == nil || got != want || !strings.Contains(err.Error(), "unknown flag --lissten") {
		t.Errorf("got %v (exit code %d), want exit code %d and the flag's name", err, got, want)
	}
	if child, err := (runCmd{Command: []string{"--", "/bin/true", "--lissten"}}).child(); err != nil || len(child.Command) != 2 {
		t.Errorf("after --: got %+v, %v; want a command of two words", child, err)
	}
}

func TestColorsAndBars(t *testing.T) {
	for _, tt := range []struct {
		env             string
		terminal        bool
		color, animated bool
	}{
		{"", true, true, true},
		{"", false, false, false},
		{"NO_COLOR=1", true, false, true},
		{"TERM=dumb", true, false, false},
		{"CLICOLOR_FORCE=1", false, true, false},
		{"CLICOLOR_FORCE=0", false, false, false},
		{"CLICOLOR_FORCE=1 NO_COLOR=1", true, false, true},
		{"CLICOLOR_FORCE=1 TERM=dumb", true, true, false},
	} {
		getenv := func(name string) string {
			for _, v := range strings.Fields(tt.env) {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		}
		if color, animated := colored(tt.terminal, getenv), animates(tt.terminal, getenv); color != tt.color || animated != tt.animated {
			t.Errorf("%q, terminal %t: got color %t, bars %t, want %t, %t", tt.env, tt.terminal, color, animated, tt.color, tt.animated)
		}
	}
}
