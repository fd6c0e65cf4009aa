package frameworks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/backendtest/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// A Python with the libraries of today, such as record.py --install makes, tries their ways
// too; without it the tests run what Debian's torch can do.
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

// Each library that is there saves checkpoints beside a stager, which restores the newest;
// the library loads that, and goes on. What is not there is named. Debian's torch does the
// ways of torch.save; the others run with a Python of record.py --install in the variable.
func TestRestoredCheckpointsLoadInTheirFramework(t *testing.T) {
	python := os.Getenv(pythonVariable)
	only := ""
	if python == "" {
		trainer, err := servers.PyTorch()
		live.Require(t, "pytorch", err)
		python, only = trainer.Python, "torch_save"
		t.Logf("with Debian's torch: the ways of torch.save alone; %s=PYTHON runs all that it can import", pythonVariable)
	}
	stager := buildStager(t)
	var ran, absent []string
	for _, way := range ways(t) {
		if !strings.HasPrefix(way, only) {
			absent = append(absent, way)
			continue
		}
		t.Run(way, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "load-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			plan := fmt.Sprintf("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: load}\nspec:\n  outputs:\n  - {name: ckpt, path: %s/out, destination: \"file://%s/dest\"}\n", dir, dir)
			if err := errors.Join(os.MkdirAll(dir+"/out", 0o777), os.Mkdir(dir+"/dest", 0o777), os.WriteFile(dir+"/plan.yaml", []byte(plan), 0o644)); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, "restored")
			if out, err := exec.Command(python, "-B", "load.py", "--has", way).CombinedOutput(); exitCode(err) == 3 {
				absent = append(absent, way)
				live.Require(t, "frameworks", fmt.Errorf("%s: %s", way, bytes.TrimSpace(out)))
			}
			save := exec.Command(stager, "run", "-f", dir+"/plan.yaml", "--socket", dir+"/s.sock", "--log-level", "warn", "--", python, "-B", "record.py", "--write", way, dir+"/out")
			if out, err := save.CombinedOutput(); err != nil {
				t.Fatalf("saving: %v\n%s", err, out)
			}
			if out, err := exec.Command(stager, "restore", "--quiet", "file://"+dir+"/dest", to).CombinedOutput(); err != nil {
				t.Fatalf("restore: %v\n%s", err, out)
			}
			out, err := exec.Command(python, "-B", "load.py", way, to).CombinedOutput()
			if err != nil {
				t.Fatalf("the framework does not load what was restored: %v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			ran = append(ran, way)
			t.Logf("loaded: %s", lines[len(lines)-1])
		})
	}
	t.Logf("loaded and gone on: %s; not tried, since this Python lacks them: %s", strings.Join(ran, " "), strings.Join(absent, " "))
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func buildStager(t *testing.T) string {
	t.Helper()
	stager := filepath.Join(t.TempDir(), "stager")
	build := exec.Command("go", "build", "-o", stager, "./cmd/stager")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return stager
}
