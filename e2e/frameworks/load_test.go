package frameworks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// Pythons with the libraries of today, such as record.py --install makes, try their ways too,
// separated by colons; without them the tests run what Debian's torch can do.
const pythonVariable = "STAGER_FRAMEWORKS_PYTHON"

// ways are the cases of record.py.
func ways(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("record.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^@case\(.*\)\ndef (\w+)\(out\):`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) < 20 {
		t.Fatalf("record.py has %d cases, want all", len(names))
	}
	return names
}

// Each library that is there saves checkpoints beside a stager; each step that was committed
// is restored, and the library loads it and goes on. What is not there is named. Debian's
// torch does the ways of torch.save; the others run with the Pythons of record.py --install
// in the variable: for each way the first one that has the library.
func TestRestoredCheckpointsLoadInTheirFramework(t *testing.T) {
	var pythons []string
	only := ""
	if list := os.Getenv(pythonVariable); list != "" {
		pythons = filepath.SplitList(list)
	} else {
		trainer, err := servers.PyTorch()
		live.Require(t, "pytorch", err)
		pythons, only = []string{trainer.Python}, "torch_save"
		t.Logf("with Debian's torch: the ways of torch.save alone; %s=PYTHON:PYTHON runs all that they can import", pythonVariable)
	}
	stager := buildStager(t)
	var table, absent []string
	for _, way := range ways(t) {
		if !strings.HasPrefix(way, only) {
			absent = append(absent, way)
			continue
		}
		t.Run(way, func(t *testing.T) {
			python, version, err := whichHas(way, pythons)
			if err != nil {
				absent = append(absent, way)
				live.Require(t, "frameworks", err)
			}
			row := loadedRow(t, stager, python, way)
			table = append(table, fmt.Sprintf("%-26s %-10s %s", way, version, row))
			t.Log(row)
		})
	}
	t.Logf("way, version, steps committed and loaded, seconds from the last completion to COMMIT, evidence:\n%s\nnot tried, since these Pythons lack them: %s",
		strings.Join(table, "\n"), strings.Join(absent, " "))
}

// whichHas returns the first Python that has the library of a way, and its version.
func whichHas(way string, pythons []string) (python, version string, err error) {
	for _, python := range pythons {
		out, err := exec.Command(python, "-B", "load.py", "--has", way).CombinedOutput()
		if err == nil {
			return python, string(bytes.TrimSpace(out)), nil
		}
		if exitCode(err) != 3 {
			return "", "", fmt.Errorf("%s: %w\n%s", way, err, out)
		}
	}
	return "", "", fmt.Errorf("no Python has the library of %s", way)
}

// loadedRow has a library save beside a stager, and load each step that is restored.
func loadedRow(t *testing.T, stager, python, way string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "load-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dest := "file://" + dir + "/dest"
	plan := fmt.Sprintf("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: load}\nspec:\n  outputs:\n  - {name: ckpt, path: %s/out, destination: %q}\n", dir, dest)
	if err := errors.Join(os.MkdirAll(dir+"/out", 0o777), os.Mkdir(dir+"/dest", 0o777), os.WriteFile(dir+"/plan.yaml", []byte(plan), 0o644)); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(stager, "run", "-f", dir+"/plan.yaml", "--socket", dir+"/s.sock", "--log-level", "warn")
	daemon.Stderr = t.Output()
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // killed, or it ended
	})
	save := exec.Command(python, "-B", "record.py", "--write", way, dir+"/out")
	save.Env = append(os.Environ(), "STAGER_MARKS="+dir+"/marks")
	if out, err := save.CombinedOutput(); err != nil {
		t.Fatalf("saving: %v\n%s", err, out)
	}
	names, saves, last := marks(t, dir+"/marks")
	var steps []committed
	for limit := time.Now().Add(time.Minute); len(steps) < len(names) && time.Now().Before(limit); time.Sleep(200 * time.Millisecond) {
		steps = committedSteps(t, stager, dest)
	}
	if len(steps) < len(names) || len(steps) > saves { // one name may be written again, as a new step
		t.Errorf("%d steps are committed of %d that the library completed: %v", len(steps), saves, names)
	}
	load, evidence, newest := []string{"-B", "load.py", way}, []string(nil), time.Time{}
	for _, s := range steps {
		to := filepath.Join(dir, fmt.Sprint("restored-", s.Step))
		if out, err := exec.Command(stager, "restore", "--quiet", "--step", fmt.Sprint(s.Step), dest, to).CombinedOutput(); err != nil {
			t.Fatalf("restore: %v\n%s", err, out)
		}
		if load = append(load, to); s.Created.After(newest) {
			newest = s.Created
		}
		if s.Provisional {
			s.Evidence += " (provisional)"
		}
		evidence = append(evidence, s.Evidence)
	}
	out, err := exec.Command(python, load...).CombinedOutput()
	if err != nil {
		t.Fatalf("the framework does not load what was restored: %v\n%s", err, out)
	}
	loaded := strings.Count("\n"+string(out), "\nloaded ")
	if loaded != len(steps) {
		t.Errorf("loaded %d of %d steps: %s", loaded, len(steps), out)
	}
	return fmt.Sprintf("%d of %d committed, %d loaded, %5.1f s, %s", len(steps), saves, loaded, newest.Sub(last).Seconds(), strings.Join(slices.Compact(evidence), ", "))
}

// committed is a step as "stager checkpoints" reports it.
type committed struct {
	Step                   int64
	Created                time.Time
	Committed, Provisional bool
	Evidence               string
}

func committedSteps(t *testing.T, stager, dest string) (steps []committed) {
	t.Helper()
	out, err := exec.Command(stager, "checkpoints", "-o", "json", dest).Output()
	if err != nil {
		return nil // there is none yet
	}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var s committed
		if err := lines.Decode(&s); err != nil {
			t.Fatal(err)
		}
		if s.Committed {
			steps = append(steps, s)
		}
	}
	return steps
}

// marks returns the names of the checkpoints that a library completed, how often it did so, and
// when last.
func marks(t *testing.T, name string) (names []string, saves int, last time.Time) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		mark, at, _ := strings.Cut(strings.TrimSpace(line), "\t")
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil {
			t.Fatal(err)
		}
		saves++
		if last = time.UnixMilli(int64(seconds * 1000)); !slices.Contains(names, mark) {
			names = append(names, mark)
		}
	}
	return names, saves, last
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// buildStager builds the binary that is tried, if STAGER_TRIAL_BINARY names none.
func buildStager(t *testing.T) string {
	t.Helper()
	if binary := os.Getenv("STAGER_TRIAL_BINARY"); binary != "" {
		return binary
	}
	stager := filepath.Join(t.TempDir(), "stager")
	build := exec.Command("go", "build", "-o", stager, "./cmd/stager")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return stager
}
