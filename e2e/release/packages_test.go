package release_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestDebHoldsTheBinaryAndItsLicenses(t *testing.T) {
	_, err := exec.LookPath("dpkg-deb")
	live.Require(t, "dpkg-deb", err)
	deb := filepath.Join(makeRelease(t), "stager_"+version+"_"+runtime.GOARCH+".deb")
	root := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "-x", deb, root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checkBinary(t, filepath.Join(root, "usr/bin/stager"))
	checkPlugin(t, filepath.Join(root, "usr/bin"))
	checkInstalled(t, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(root, name)) }, "vendor-completions", "usr/share/doc/stager/copyright")
	fields, err := exec.Command("dpkg-deb", "-f", deb, "Package", "Version", "Architecture", "Maintainer").Output()
	if want := "Package: stager\nVersion: " + version + "\nArchitecture: " + runtime.GOARCH + "\nMaintainer: " + maintainer + "\n"; err != nil || string(fields) != want {
		t.Errorf("got %q, %v, want %q", fields, err, want)
	}
	control := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "-e", deb, control).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sums := exec.Command("md5sum", "--check", "--strict", "--quiet", filepath.Join(control, "md5sums"))
	sums.Dir = root
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// dpkg installs the package into a system of its own, and removes all of it.
func TestDebInstallsAndIsRemoved(t *testing.T) {
	_, err := exec.LookPath("dpkg")
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("dpkg gives files to root")
	}
	live.Require(t, "dpkg-deb", err)
	root := t.TempDir()
	admin := filepath.Join(root, "var/lib/dpkg")
	for _, dir := range []string{"info", "updates"} {
		if err := os.MkdirAll(filepath.Join(admin, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(admin, "status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "dpkg", append([]string{"--root=" + root, "--log=" + filepath.Join(root, "log")}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("dpkg %v: %v: %s", args, err, out)
		}
	}
	dpkg("--install", filepath.Join(makeRelease(t), "stager_"+version+"_"+runtime.GOARCH+".deb"))
	dpkg("--verify", "stager")
	checkBinary(t, filepath.Join(root, "usr/bin/stager"))
	checkPlugin(t, filepath.Join(root, "usr/bin"))
	dpkg("--remove", "stager")
	if left, err := os.ReadDir(filepath.Join(root, "usr")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the removal there is %v, %v, want nothing", left, err)
	}
}

func TestRPMHoldsTheBinaryAndItsLicenses(t *testing.T) {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	body, err := os.ReadFile(filepath.Join(makeRelease(t), "stager-"+version+"-1."+arch+".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	files := unpackRPM(t, body)
	stager := filepath.Join(root, "stager")
	if err := os.WriteFile(stager, files["usr/bin/stager"], 0o755); err != nil {
		t.Fatal(err)
	}
	checkBinary(t, stager)
	for _, link := range plugins {
		if to := string(files["usr/bin/"+link]); to != "stager" {
			t.Errorf("%s: got a link to %.20q, want stager", link, to)
		}
	}
	checkInstalled(t, func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return nil, os.ErrNotExist
	}, "site-functions", "usr/share/licenses/stager/THIRD_PARTY_LICENSES")
}

// plugins are the links by which kubectl finds its plugin.
var plugins = []string{"kubectl-stager", "kubectl_complete-stager"}

// checkPlugin runs the binary by these links.
func checkPlugin(t *testing.T, dir string) {
	t.Helper()
	for i, want := range []string{"Usage: kubectl stager <command>", "status\tShow the state of the stager in a pod.\n:4\n"} {
		cmd := exec.Command(filepath.Join(dir, plugins[i]), []string{"--help", "stat"}[i])
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: got %q, %v, want %q", plugins[i], out, err, want)
		}
	}
}

// unpackRPM returns the files of a package, which has a lead, two headers and a compressed cpio.
func unpackRPM(t *testing.T, body []byte) map[string][]byte {
	t.Helper()
	const lead, intro = 96, 16
	at := lead
	for i := range 2 {
		at += intro + int(binary.BigEndian.Uint32(body[at+8:]))*16 + int(binary.BigEndian.Uint32(body[at+12:]))
		if i == 0 {
			at = (at + 7) / 8 * 8
		}
	}
	unzip := exec.Command("gzip", "-dc") // the race detector would slow down this package's
	unzip.Stdin = bytes.NewReader(body[at:])
	payload, err := unzip.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for r := cpio.NewReader(bytes.NewReader(payload)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Linkname != "" {
			text = []byte(h.Linkname)
		}
		files[strings.TrimLeft(h.Name, "./")] = text
	}
}

// checkInstalled reads the files next to the binary.
func checkInstalled(t *testing.T, read func(name string) ([]byte, error), zsh, licenses string) {
	t.Helper()
	for name, want := range map[string]string{
		"usr/share/bash-completion/completions/stager":    "complete -o default -F _stager stager",
		"usr/share/fish/vendor_completions.d/stager.fish": "complete -c stager",
		"usr/share/man/man1/stager.1":                     ".BR stager\\-prefetch (1)",
		"usr/share/man/man1/stager-prefetch.1":            ".SH SYNOPSIS\nstager prefetch",
		"usr/share/zsh/" + zsh + "/_stager":               "#compdef stager",
		licenses:                                          "github.com/alecthomas/kong",
	} {
		if text, err := read(name); err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s: got %d bytes, %v, want %q in it", name, len(text), err, want)
		}
	}
}
