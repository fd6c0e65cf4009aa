package tools

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// bin is a directory with the stager that is tested, under both of its names.
var bin string

func TestMain(m *testing.M) {
	code, err := withStager(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withStager(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "stager-tools-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin = dir
	build := exec.Command("go", "build", "-C", "../..", "-o", filepath.Join(dir, "stager"), "./cmd/stager")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := errors.Join(build.Run(), os.Symlink("stager", filepath.Join(dir, "stager-krm"))); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// program returns the path of a program of another project, built if it must be.
func program(t *testing.T, name string) string {
	t.Helper()
	if path, err := servers.Program(name); err == nil {
		return path
	}
	mayBuild(t, name)
	path, err := servers.BuildProgram(t.Context(), name, os.Stderr)
	live.Require(t, "tools", err)
	return path
}

// mayBuild skips the test where nobody asked for programs to be built.
func mayBuild(t *testing.T, name string) {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv(live.EnvRequire), ","), "tools") {
		live.Require(t, "tools", fmt.Errorf("%s is not built; it is when %s names tools", name, live.EnvRequire))
	}
}

// command prepares a program in a directory, with stager in its path.
func command(t *testing.T, dir string, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir,
		"HELM_PLUGINS="+filepath.Join(dir, "plugins"), "HELM_DATA_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_CACHE_HOME="+dir)
	return cmd
}

// run runs a program and returns its standard output.
func run(t *testing.T, dir, in string, words ...string) (string, error) {
	t.Helper()
	cmd := command(t, dir, words...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(in), &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", strings.Join(words[1:], " "), err, said.String(), out)
	}
	return string(out), err
}

// files writes files below a new directory.
func files(t *testing.T, all map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
