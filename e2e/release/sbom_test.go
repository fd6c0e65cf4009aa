package release_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestSBOMNamesTheModulesOfTheBinary(t *testing.T) {
	dir := makeRelease(t)
	out, err := exec.Command("tar", "-xzOf", filepath.Join(dir, "stager_"+version+"_linux_"+runtime.GOARCH+".tar.gz"), "stager").Output()
	if err != nil {
		t.Fatal(err)
	}
	stager := filepath.Join(t.TempDir(), "stager")
	if err := os.WriteFile(stager, out, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err = exec.Command(stager, "version", "-o", "json").Output(); err != nil {
		t.Fatal(err)
	}
	var built struct{ Modules map[string]string }
	if err := json.Unmarshal(out, &built); err != nil {
		t.Fatal(err)
	}
	built.Modules["std"] = strings.TrimPrefix(runtime.Version(), "go")
	var cyclone struct {
		Components []struct{ Name, Version string }
	}
	var spdx struct {
		Packages []struct{ Name, VersionInfo, LicenseDeclared string }
	}
	for name, into := range map[string]any{"cdx": &cyclone, "spdx": &spdx} {
		text, err := os.ReadFile(filepath.Join(dir, "stager_"+version+"_sbom."+name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	if len(built.Modules) < 50 || len(cyclone.Components) != len(built.Modules) || len(spdx.Packages) != len(built.Modules)+1 {
		t.Errorf("got %d components and %d packages, want those of %d modules, and the product as a package", len(cyclone.Components), len(spdx.Packages), len(built.Modules))
	}
	for _, c := range cyclone.Components {
		if got, want := c.Version, built.Modules[c.Name]; got != want {
			t.Errorf("component %s: got version %q, want %q", c.Name, got, want)
		}
	}
	for _, p := range spdx.Packages[1:] {
		if got, want := p.VersionInfo, built.Modules[p.Name]; got != want || p.LicenseDeclared == "" {
			t.Errorf("package %s: got version %q and license %q, want %q and a license", p.Name, got, p.LicenseDeclared, want)
		}
	}
}

func TestWheelInstallsTheBinaryAndTheModule(t *testing.T) {
	venv := filepath.Join(t.TempDir(), "venv")
	out, err := exec.Command("python3", "-m", "venv", venv).CombinedOutput()
	if err != nil {
		t.Logf("%s", out)
	}
	live.Require(t, "python", err)
	wheels, err := filepath.Glob(filepath.Join(makeRelease(t), "stager-"+version+"-py3-none-*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("got the wheels %v, %v, want one", wheels, err)
	}
	python := filepath.Join(venv, "bin/python")
	if out, err := exec.Command(python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", wheels[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checkBinary(t, filepath.Join(venv, "bin/stager"))
	checkPlugin(t, filepath.Join(venv, "bin"))
	for _, args := range [][]string{{"-m", "stager", "--version"}, {"-c", "import stager; print('stager', stager.__version__, '')"}} {
		cmd := exec.Command(python, args...)
		cmd.Env = []string{"PATH=/nowhere"}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "stager "+version+" ") {
			t.Errorf("python %v: got %q, %v, want stager %s", args, out, err, version)
		}
	}
}
