package release

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// No Mac runs this test: a shell whose only programs are those that macOS has, too, by the name of
// the system, installs an archive in which the binary is a script.
func TestInstallerInstallsOnMacOS(t *testing.T) {
	_, err := exec.LookPath("shasum")
	live.Require(t, "shasum", err)
	for name, tt := range map[string]struct {
		machine, without string
		spoil            bool
		want             string
		code             int
	}{
		"Apple silicon": {machine: "arm64", want: "installed stager 0.1.0 as $HOME/.local/bin/stager\n"},
		"a wrong sum":   {machine: "arm64", spoil: true, want: "install.sh: stager_0.1.0_darwin_arm64.tar.gz has the wrong checksum (", code: 1},
		"no sums":       {machine: "arm64", without: "shasum", want: "install.sh: neither sha256sum nor shasum is installed, so", code: 1},
		"Intel":         {machine: "x86_64", want: "install.sh: no binary for Darwin on x86_64; stager runs on", code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &release{
				Options: Options{Version: "0.1.0", Date: time.Unix(1780000000, 0)}, dir: t.TempDir(),
				license: []byte("license"), notices: []byte("notices"),
			}
			mac := Platform{"darwin", "arm64"}
			if err := errors.Join(r.archive(mac, []byte("#!/bin/sh\necho stager 0.1.0 go1.26 darwin/arm64\n")), r.installer()); err != nil {
				t.Fatal(err)
			}
			if tt.spoil {
				if err := os.Truncate(filepath.Join(r.dir, r.archiveName(mac)), 100); err != nil {
					t.Fatal(err)
				}
			}
			home := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(r.dir, "install.sh"))
			cmd.Env = []string{"HOME=" + home, "PATH=" + macPrograms(t, tt.machine, tt.without)}
			out, _ := cmd.CombinedOutput()
			want := strings.ReplaceAll(tt.want, "$HOME", home)
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.HasPrefix(string(out), want) {
				t.Errorf("got %d, %q, want %d, %q", code, out, tt.code, want)
			}
			_, err := os.Stat(filepath.Join(home, ".local/bin/stager"))
			if installed := err == nil; installed != (tt.code == 0) {
				t.Errorf("code %d: the binary is there: %v", tt.code, installed)
			}
		})
	}
}

// macPrograms returns a directory with the programs that install.sh may find on macOS, but one.
func macPrograms(t *testing.T, machine, without string) string {
	t.Helper()
	dir := t.TempDir()
	uname := fmt.Sprintf("#!/bin/sh\ncase $1 in -s) echo Darwin ;; -m) echo %s ;; esac\n", machine)
	if err := os.WriteFile(filepath.Join(dir, "uname"), []byte(uname), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chmod", "cp", "cut", "dirname", "gzip", "ln", "mkdir", "mktemp", "mv", "readlink", "rm", "sed", "shasum", "tar"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == without {
			continue
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
