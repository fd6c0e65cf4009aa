package release_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/release"
)

const (
	version = "0.1.0"
	commit  = "0123456789abcdef0123456789abcdef01234567"

	repository = "registry.example.com/stager"
	address    = "https://example.com/stager"
	maintainer = "Ada <ada@example.com>"
)

// made is the release that all tests share: of this machine's architecture, in a directory that
// every user can read.
var made struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if made.dir != "" {
		_ = os.RemoveAll(filepath.Dir(made.dir))
	}
	os.Exit(code)
}

// makeRelease runs the command, because the race detector would slow down what a test compresses.
func makeRelease(t *testing.T) string {
	t.Helper()
	made.Do(func() {
		work, err := os.MkdirTemp("", "stager-release-")
		if err != nil {
			made.err = err
			return
		}
		made.dir = filepath.Join(work, "release")
		cmd := exec.Command("go", "run", "../cmd/release", "-source", "../..", "-o", made.dir, "-version", "v"+version, "-commit", commit, "-date", "1780000000", "-platforms", "linux/"+runtime.GOARCH,
			"-repository", repository, "-url", address+"/", "-maintainer", maintainer)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		made.err = errors.Join(err, os.Chmod(work, 0o755))
	})
	if made.err != nil {
		t.Fatal(made.err)
	}
	return made.dir
}

// home is an empty home directory of the user that runs installers.
type home struct {
	t    *testing.T
	dir  string
	temp string              // its TMPDIR: the machine's may be closed to other users than root
	user *syscall.Credential // nil: this process's
}

// newHome makes a home for a user other than root, whom every directory obeys.
// At the end of the test its temporary directory must be empty.
func newHome(t *testing.T) home {
	t.Helper()
	both, err := os.MkdirTemp("", "stager-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(both) })
	h := home{t: t, dir: filepath.Join(both, "home"), temp: filepath.Join(both, "tmp")}
	if err := errors.Join(os.Chmod(both, 0o755), os.Mkdir(h.dir, 0o700), os.Mkdir(h.temp, 0o700)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		h.user = &syscall.Credential{Uid: 65534, Gid: 65534}
		if err := errors.Join(os.Chown(h.dir, 65534, 65534), os.Chown(h.temp, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(h.temp); err != nil || len(left) != 0 {
			t.Errorf("left in the temporary directory: got %v, %v, want nothing", left, err)
		}
	})
	return h
}

// sh types a line in a directory and returns the output and the exit code.
func (h home) sh(dir, line string) (string, int) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + h.dir, "TMPDIR=" + h.temp, "PATH=" + filepath.Join(h.dir, ".local/bin") + ":/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.user}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("%s: %v", line, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// files returns what is in the home.
func (h home) files() (names []string) {
	h.t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, h.dir+"/"))
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return names
}

// checkBinary runs a binary and compares what it says of itself.
func checkBinary(t *testing.T, path string) {
	t.Helper()
	out, err := exec.Command(path, "version", "-o", "json").Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var got struct{ Version, Commit, Platform string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got.Version != version || got.Commit != commit || got.Platform != "linux/"+runtime.GOARCH {
		t.Errorf("%s: got %+v, want version %s, commit %s, platform linux/%s", path, got, version, commit, runtime.GOARCH)
	}
	line, err := exec.Command(path, "--version").Output()
	if want := "stager " + version + " "; err != nil || !strings.HasPrefix(string(line), want) {
		t.Errorf("%s --version: got %q, %v, want it to begin with %q", path, line, err, want)
	}
}

// A name without a registry would be the image of other authors.
func TestReleasedStagerInjectsItsOwnImage(t *testing.T) {
	h := newHome(t)
	if out, code := h.sh("/", "sh "+makeRelease(t)+"/install.sh"); code != 0 {
		t.Fatal(code, out)
	}
	cmd := exec.Command(filepath.Join(h.dir, ".local/bin/stager"), "inject")
	cmd.Stdin = strings.NewReader(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"stager.dev/in.train":"s3://b/ -> /data"}},"spec":{"containers":[{"name":"a","image":"a"}]}}`)
	out, err := cmd.CombinedOutput()
	if want := `"image": "` + repository + ":" + version + `"`; err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "level=WARN") {
		t.Errorf("got %v, %s, want %s and no warning", err, out, want)
	}
}

func TestReleaseHasTheSumOfEachFile(t *testing.T) {
	dir := makeRelease(t)
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(out), ": OK\n"), len(files)-1; got != want {
		t.Errorf("got %d sums, want %d, one for each other file:\n%s", got, want, out)
	}
	for _, f := range files {
		info, err := f.Info()
		if want := time.Unix(1780000000, 0); err != nil || !info.ModTime().Equal(want) {
			t.Errorf("%s: got the time %v, %v, want %v", f.Name(), info.ModTime(), err, want)
		}
	}
}

func TestInstallerInstallsAndReplaces(t *testing.T) {
	dir := makeRelease(t)
	h := newHome(t)
	bin := filepath.Join(h.dir, ".local/bin/stager")
	out, code := h.sh("/", "sh "+dir+"/install.sh")
	remove := "rm " + bin
	for _, link := range plugins {
		remove += " " + filepath.Join(h.dir, ".local/bin", link)
	}
	want := "installed stager " + version + " as " + bin + "\nto remove it: " + remove + "\n"
	if code != 0 || out != want {
		t.Fatalf("got %d, %q, want 0, %q", code, out, want)
	}
	checkBinary(t, bin)
	checkPlugin(t, filepath.Dir(bin))
	if err := os.WriteFile(bin, []byte("#!/bin/sh\necho stager 0.0.9 go1.26 linux/amd64\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, code = h.sh(dir, "sh install.sh")
	if want := "installed stager " + version + " as " + bin + ", in place of stager 0.0.9\n"; code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("got %d, %q, want 0, %q", code, out, want)
	}
	checkBinary(t, bin)
	if got, want := fmt.Sprint(h.files()), "[.local/bin/kubectl-stager .local/bin/kubectl_complete-stager .local/bin/stager]"; got != want {
		t.Errorf("got the files %s, want %s", got, want)
	}
	if out, code := h.sh(dir, "sh install.sh --to elsewhere"); code == 0 || !strings.Contains(out, "no permission to write to "+dir+"/elsewhere;") {
		t.Errorf("a relative directory: got %d, %q, want a refusal with its full name", code, out)
	}
	if out, code := h.sh("/", remove); code != 0 || len(h.files()) != 0 {
		t.Errorf("%s: got %d, %q, and the files %v, want none", remove, code, out, h.files())
	}
}

// What another program calls kubectl-stager stays.
func TestInstallerKeepsAnotherPlugin(t *testing.T) {
	h := newHome(t)
	const prepare = "mkdir -p .local/bin && echo mine >.local/bin/kubectl-stager"
	bin := filepath.Join(h.dir, ".local/bin")
	out, code := h.sh(h.dir, prepare+" && sh "+makeRelease(t)+"/install.sh")
	want := bin + "/kubectl-stager is not a link to stager, and was left as it is\nto remove it: rm " + bin + "/stager " + bin + "/kubectl_complete-stager\n"
	if code != 0 || !strings.HasSuffix(out, want) {
		t.Errorf("got %d, %q, want 0, %q", code, out, want)
	}
	if text, err := os.ReadFile(filepath.Join(bin, "kubectl-stager")); err != nil || string(text) != "mine\n" {
		t.Errorf("got %q, %v, want the file as it was", text, err)
	}
}

func TestInstallerRefusesInOneSentence(t *testing.T) {
	dir := makeRelease(t)
	archive := fmt.Sprintf("stager_%s_linux_%s.tar.gz", version, runtime.GOARCH)
	for name, tt := range map[string]struct {
		prepare string // before the installer runs, in the home
		line    string
		want    string
	}{
		"a wrong sum": {
			"mkdir bad && cp " + dir + "/* bad && chmod u+w bad/* && echo more >>bad/" + archive, "sh bad/install.sh",
			archive + " has the wrong checksum (",
		},
		"a missing archive":     {"mkdir bad && cp " + dir + "/install.sh bad", "sh bad/install.sh", "bad has no " + archive + "; run install.sh in the directory of the release"},
		"no permission":         {"mkdir -p .local/bin && chmod 555 .local/bin", "sh " + dir + "/install.sh", "no permission to write to $HOME/.local/bin; choose another"},
		"no permission above":   {"mkdir .local && chmod 555 .local", "sh " + dir + "/install.sh", "no permission to write to $HOME/.local/bin; choose another"},
		"a file for directory":  {"touch .local", "sh " + dir + "/install.sh", "no permission to write to $HOME/.local/bin; choose another"},
		"a directory in place":  {"mkdir -p .local/bin/stager", "sh " + dir + "/install.sh", "$HOME/.local/bin/stager is a directory; choose another"},
		"another program there": {"mkdir -p .local/bin && printf '#!/bin/sh\necho 7\n' >.local/bin/stager && chmod +x .local/bin/stager", "sh " + dir + "/install.sh", "$HOME/.local/bin/stager is not stager; remove it"},
		"a pipe":                {"", "cat " + dir + "/install.sh | sh", "the source is unknown when the script is read from a pipe; name it with --from URL"},
		"a server that is away": {"", "sh " + dir + "/install.sh --from http://127.0.0.1:1", "cannot download http://127.0.0.1:1/" + archive + "; check the address"},
		"an unknown machine":    {"mkdir b && printf '#!/bin/sh\necho s390x\n' >b/uname && chmod +x b/uname", "PATH=$HOME/b:$PATH sh " + dir + "/install.sh", "no binary for s390x on s390x; stager runs on Linux on x86_64 and aarch64, and in part on macOS on arm64"},
		"an unknown flag":       {"", "sh " + dir + "/install.sh --prefix x", "unknown argument --prefix; use --from DIR"},
		"a flag without value":  {"", "sh " + dir + "/install.sh --to", "--to needs a value"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			if out, code := h.sh(h.dir, "umask 022; "+tt.prepare); code != 0 {
				t.Fatalf("%s: %d, %s", tt.prepare, code, out)
			}
			before := fmt.Sprint(h.files())
			out, code := h.sh(h.dir, tt.line)
			// curl says in a line of its own what the network said.
			lines := strings.Split(strings.TrimSpace(out), "\n")
			want := "install.sh: " + strings.ReplaceAll(tt.want, "$HOME", h.dir)
			if last := lines[len(lines)-1]; code != 1 || !strings.HasPrefix(last, want) || len(lines) > 2 {
				t.Errorf("got %d, %q, want 1, %q", code, out, want)
			}
			if after := fmt.Sprint(h.files()); after != before {
				t.Errorf("got the files %s, want %s as before", after, before)
			}
		})
	}
}

func TestMakeRefusesWhatIsNoRelease(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	date := time.Unix(1780000000, 0)
	for want, opts := range map[string]release.Options{
		`version "" is not a release version`:       {Out: t.TempDir(), Date: date},
		`version "e40de50" is not`:                  {Out: t.TempDir(), Date: date, Version: "e40de50"},
		`version "0.1.0-3-ge40de50-dirty" is not`:   {Out: t.TempDir(), Date: date, Version: "v0.1.0-3-ge40de50-dirty"},
		"no date: give that of the commit":          {Out: t.TempDir(), Version: "0.1.0", Date: time.Unix(0, 0)},
		`maintainer "Ada" is not a name and`:        {Out: t.TempDir(), Date: date, Version: "0.1.0", Maintainer: "Ada"},
		`repository "stager" is not the full name`:  {Out: t.TempDir(), Date: date, Version: "0.1.0", Repository: "stager"},
		`repository "a/stager" is not the full`:     {Out: t.TempDir(), Date: date, Version: "0.1.0", Repository: "a/stager"},
		`url "http://example.com" is not where`:     {Out: t.TempDir(), Date: date, Version: "0.1.0", URL: "http://example.com"},
		"is not empty and holds no release: choose": {Out: full, Version: "0.1.0", Date: date},
	} {
		if err := release.Make(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The page's commands run in their order in a release, and print what it shows.
func TestInstallPageRunsAsPrinted(t *testing.T) {
	dir := makeRelease(t)
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	commands := 0
	for section := range strings.SplitSeq(string(text), "\n    $ ") {
		commands++
		if commands == 1 {
			continue // what precedes the first command
		}
		line, rest, _ := strings.Cut(section, "\n")
		var want strings.Builder
		for printed := range strings.Lines(rest) {
			output, ok := strings.CutPrefix(printed, "    ")
			if !ok {
				break
			}
			want.WriteString(output)
		}
		got, code := h.sh(dir, strings.ReplaceAll(line, "amd64", runtime.GOARCH))
		got = strings.ReplaceAll(got, h.dir, "/home/alice")
		if code != 0 || strings.TrimSpace(got) != strings.TrimSpace(want.String()) {
			t.Errorf("%s: got %d, %q, want 0, %q", line, code, got, want.String())
		}
	}
	if commands < 4 {
		t.Errorf("got %d commands, want those of the page", commands-1)
	}
}
