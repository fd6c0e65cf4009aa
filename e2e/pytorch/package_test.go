package pytorch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// packageTools runs the tools of the Python package in its directory.
func packageTools(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	trainer, err := servers.PyTorch()
	live.Require(t, "pytorch", err)
	tools, err := servers.PythonTools()
	live.Require(t, "pytorch", err)
	data := filepath.Join(t.TempDir(), "coverage")
	return func(args ...string) (string, error) {
		cmd := exec.Command(tools.Python, append([]string{"-B", "-m"}, args...)...)
		cmd.Dir = filepath.Join("..", "..", "python")
		path := strings.Join([]string{tools.Path, trainer.Path}, string(os.PathListSeparator))
		cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "COVERAGE_FILE="+data, "MYPY_CACHE_DIR="+os.DevNull, "RUFF_NO_CACHE=true")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// The package has types for those who check their own, and one style.
func TestPythonPackagePassesItsLinters(t *testing.T) {
	run := packageTools(t)
	for _, args := range [][]string{{"mypy", "--strict", "--no-site-packages", "stager"}, {"ruff", "check", "."}} {
		if out, err := run(args...); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Pyright, which editors use, sees the types of Debian's PyTorch and of WebDataset, where mypy sees none.
func TestPythonPackageHasNoErrorsInPyright(t *testing.T) {
	trainer, err := servers.PyTorch()
	live.Require(t, "pytorch", err)
	node, script, err := servers.Pyright()
	live.Require(t, "pytorch", err)
	cmd := exec.CommandContext(t.Context(), node, script, "--pythonpath", trainer.Python)
	cmd.Dir = filepath.Join("..", "..", "python")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+trainer.Path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("pyright: %v\n%s", err, out)
	}
}

// The tests of the package run at least 95 % of its statements, those with PyTorch and
// WebDataset included.
func TestPythonPackageIsCoveredByItsTests(t *testing.T) {
	run := packageTools(t)
	for i, dir := range []string{"tests", "tests/frameworks"} {
		args := []string{"coverage", "run", "--source", "stager", "-m", "unittest", "discover", "-s", dir}
		if i > 0 {
			args = append(args[:2], append([]string{"--append"}, args[2:]...)...)
		}
		if out, err := run(args...); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
	out, err := run("coverage", "report", "--show-missing", "--fail-under=95")
	t.Log(out)
	if err != nil {
		t.Errorf("got %v, want a coverage of 95 %% or more", err)
	}
}
