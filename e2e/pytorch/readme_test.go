package pytorch

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// loaderLines are the examples of loaders in the README and in the page on reading shards, each
// with its language, and that of WebDataset without the package in the manual.
func loaderLines(t *testing.T) (python, shell []string) {
	t.Helper()
	_, curl, _ := strings.Cut(page(t, "docs/guides/python.md"), "```python\nwait = ")
	curl, _, _ = strings.Cut(curl, "\n```")
	python = append(python, "wait = "+curl)
	for _, text := range []string{page(t, "README.md"), page(t, "docs/guides/read-shards.md")} {
		blocks := fenced.FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Fatal("a page has no loaders any more")
		}
		for _, block := range blocks {
			if block[1] == "python" {
				python = append(python, block[2])
			} else {
				shell = append(shell, block[2])
			}
		}
	}
	return python, shell
}

var fenced = regexp.MustCompile("(?s)\n```(python|sh)\n(.*?)\n```")

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What stands before and after the README's lines. Each ends by printing how many samples
// there were.
var around = []struct{ of, before, after string }{
	{"loader(SampleDataset", "def decode(sample): return int(sample['cls'])\n" + counting, "\nprint(seen)\n"},
	{"loader(ShardDataset", "import webdataset as wds\n" + counting, "\nprint(seen)\n"},
	{"pipe:curl", "import webdataset as wds\n", // 1,000 are far more than there are
		"\nprint(sum(1 for _ in wds.WebDataset(urls[:40], shardshuffle=False)))\n"},
	{"in batches(", "state = 0\n" +
		"def decode(sample): return sample['cls']\ndef step(state, batch): return state + len(batch)\n", "\nprint(state)\n"},
}

// counting defines a step that counts samples, of batches of any kind.
const counting = "seen = 0\ndef step(batch):\n    global seen\n    seen += len(batch['cls'] if isinstance(batch, dict) else batch)\n"

// Three of these lines did not work as they were printed, while the tests that named them
// ran others: a generator is no stage of a DataPipeline; single quotes kept $PPID from
// being expanded; and a for over a pattern ends with what is there when it begins.
func TestLoadersOfTheReadmeRunAsPrinted(t *testing.T) {
	l := newLab(t)
	python, shell := loaderLines(t)
	if want := len(around) + 1; len(python) != want { // PyTorch's is in both
		t.Errorf("got %d blocks of Python, want %d", len(python), want)
	}
	for _, block := range python {
		i := slices.IndexFunc(around, func(a struct{ of, before, after string }) bool { return strings.Contains(block, a.of) })
		if i < 0 {
			t.Errorf("nothing is known of %q", block)
			continue
		}
		t.Run(around[i].of, func(t *testing.T) {
			out := l.runs(t, l.trainer.Python, "-B", "-c", around[i].before+block+around[i].after)
			if got, want := strings.TrimSpace(out), strconv.Itoa(samples); got != want {
				t.Errorf("got %s samples, want %s", got, want)
			}
		})
	}
	tried := 0
	for _, block := range shell {
		if strings.HasPrefix(block, "stager sample ") {
			continue // it is no loader
		}
		tried++
		t.Run("sh", func(t *testing.T) {
			out := l.runs(t, "sh", "-c", block+"\ncat taken")
			taken := strings.Fields(out)
			slices.Sort(taken)
			if got := len(slices.Compact(taken)); got != count {
				t.Errorf("got %d different shards, want %d:\n%s", got, count, out)
			}
		})
	}
	if tried != 2 {
		t.Errorf("got %d shell loops, want 2", tried)
	}
}

// runs runs a program that has the README's paths, beside a window of its own, and returns
// what it prints.
func (l *lab) runs(t *testing.T, name string, args ...string) string {
	t.Helper()
	own := *l
	own.t, l = t, &own // whose failures are this test's
	socket := l.window()
	directory, work := filepath.Dir(socket), t.TempDir()
	step := "#!/bin/sh\nname=${1##*digits-}\necho digits-$name >>taken\n"
	if err := os.WriteFile(filepath.Join(work, "step"), []byte(step), 0o755); err != nil {
		t.Fatal(err)
	}
	l.await(t, socket)
	paths := strings.NewReplacer("/run/stager/stager.sock", socket, "/data/train/", directory+"/data/")
	last := len(args) - 1
	args[last] = paths.Replace(args[last])
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = work
	cmd.Env = append(l.command(socket).Env, "PATH="+filepath.Dir(l.stager)+string(os.PathListSeparator)+os.Getenv("PATH"))
	return string(l.run(cmd))
}

// await waits until a window has something ready.
func (l *lab) await(t *testing.T, socket string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command(l.stager, "status", "--ready", "--socket", socket).Run() == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the window is not ready after a minute")
		}
	}
}
