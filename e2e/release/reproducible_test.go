package release

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// smallRelease makes a release of binaries of a few bytes.
func smallRelease(t *testing.T, platforms ...Platform) *release {
	t.Helper()
	r := &release{
		Options: Options{Source: "../..", Version: "0.1.0", Commit: "abc", Date: time.Unix(1780000000, 0), Platforms: platforms}, dir: t.TempDir(), work: t.TempDir(),
		license: []byte("license"), notices: []byte("notices"),
		completions: map[string][]byte{"bash": []byte("b"), "fish": []byte("f"), "zsh": []byte("z")},
		manual:      map[string][]byte{"stager.1": []byte("1"), "stager-ls.1": []byte("2"), "stager-run.1": []byte("3")},
	}
	for _, p := range platforms {
		if err := os.WriteFile(r.binary(p), []byte("binary for "+p.String()), 0o755); err != nil { // build takes it as built
			t.Fatal(err)
		}
	}
	modules := []module{{Path: "example.com/a", Version: "v1.0.0", Licenses: []license{{Name: "LICENSE", ID: "MIT"}}}}
	if err := errors.Join(r.sbom(modules), r.files(t.Context())); err != nil {
		t.Fatalf("a release of %v: %v", platforms, err)
	}
	return r
}

// A map's order is another one each time, so that one of 10 rounds would differ.
func TestReleaseIsTheSameEachTime(t *testing.T) {
	var first string
	for i := range 10 {
		sums, err := os.ReadFile(filepath.Join(smallRelease(t, Platforms...).dir, sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = string(sums)
		} else if string(sums) != first {
			t.Fatalf("round %d: got\n%s, want\n%s", i, sums, first)
		}
	}
}

// A release may be of some platforms only. One of macOS alone has no image and nothing that would
// install one: its archive once had no first image to be named after.
func TestReleaseOfAnyPlatforms(t *testing.T) {
	for chosen := 1; chosen < 1<<len(Platforms); chosen++ {
		var platforms []Platform
		linux := 0
		for i, p := range Platforms {
			if chosen&(1<<i) == 0 {
				continue
			}
			platforms = append(platforms, p)
			if p.System == "linux" {
				linux++
			}
		}
		t.Run(fmt.Sprint(platforms), func(t *testing.T) {
			r := smallRelease(t, platforms...)
			count := func(pattern string) int {
				found, err := filepath.Glob(filepath.Join(r.dir, pattern))
				if err != nil {
					t.Fatal(err)
				}
				return len(found)
			}
			for pattern, want := range map[string]int{
				"*.tar.gz": len(platforms), "*.deb": linux, "*.rpm": linux, "*.whl": linux,
				"stager_0.1.0_image.tar": min(linux, 1), "stager-0.1.0.tgz": min(linux, 1),
				"install.sh": 1, krewFile: 1, sumsFile: 1,
			} {
				if got := count(pattern); got != want {
					t.Errorf("%s: got %d files, want %d", pattern, got, want)
				}
			}
		})
	}
}

// A download that broke off is a file of the right name. An archive without its last block can even
// be read as a whole one.
func TestReleaseCutShortIsRefused(t *testing.T) {
	r := smallRelease(t, Platforms...)
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == sumsFile {
			continue
		}
		path := filepath.Join(r.dir, e.Name())
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range slices.Compact([]int{0, 1, len(whole) / 2, max(len(whole)-512, 2), len(whole) - 1}) {
			if err := os.WriteFile(path, whole[:size], 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", sumsFile)
			cmd.Dir = r.dir
			out, _ := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != 1 || string(out) != e.Name()+": FAILED\n" {
				t.Errorf("%s with %d of %d bytes: got %d, %q, want 1 and that name alone", e.Name(), size, len(whole), code, out)
			}
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(entries) < 15 || !strings.HasPrefix(entries[0].Name(), "SHA") {
		t.Errorf("got the files %v, want those of a release", entries)
	}
}
