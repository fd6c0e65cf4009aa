package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// illustration is the line before a block that nothing can run here, such as one for a package
// manager of a machine. Blocks of these languages are no commands.
const illustration = "<!-- illustration -->"

var notCommands = map[string]bool{"mermaid": true, "text": true}

// pagesElsewhere are pages of docs whose blocks other tests run: each line after a $, and the
// blocks that begin as given.
var pagesElsewhere = map[string]readmeBlock{
	"install.md":       {by: "TestInstallPageRunsAsPrinted"},
	"webhook.md":       {begins: "apiVersion: batch/v1", by: "newcomer"},
	"explain.md":       {by: "TestExplainManualShowsWhatIsPrinted"},
	"reference/cli.md": {begins: "", by: "TestExamplesOfHelpAreUnderstood"},

	"guides/check-a-store.md": {by: readmeTest},
	"guides/containers.md":    {by: readmeTest},
	"guides/read-shards.md":   {by: readmeTest},
	"guides/command-line.md":  {by: readmeTest},
	"guides/openpai.md":       {by: readmeTest},

	"start/workstation.md":   {begins: "", by: "TestStartPagesAreFollowed"},
	"start/kubernetes.md":    {begins: "", by: "followsStartPage"},
	"start/training-loop.md": {begins: "", by: "TestStartPagesAreFollowed"},
}

// pageBlocks are the blocks of the other pages, in their order.
var pageBlocks = map[string][]readmeBlock{
	"checkpoints-of-several-nodes.md": {
		{begins: "outputs:\n- name: ckpt", run: func(r *readme, block string) {
			r.write("plan.yaml", planHead+strings.ReplaceAll("\n"+block, "\n", "\n  "))
		}},
		{begins: "stager check -f plan.yaml", run: (*readme).types},
		{begins: "stager restore --optional", run: (*readme).types},
		{begins: "stager ls s3://bucket/runs/job/nodes/members/", run: (*readme).listsRecords},
		{begins: "stager ls s3://bucket/runs/job/nodes/restores/", run: (*readme).types},
	},
	"when-a-checkpoint-is-complete.md": {
		{begins: "stager checkpoints", run: func(r *readme, block string) {
			r.sh("stager push --commit step-500 s3://bucket/runs/17/")
			r.types(block)
		}},
		{begins: "os.rename(", run: (*readme).completes},
	},
	"reference/annotations.md": {{begins: "stager.dev/out.ckpt: ", run: (*readme).annotates}},
	"reference/plan.md": {{begins: "# yaml-language-server", run: func(r *readme, block string) {
		r.write("edited.yaml", block+planHead+"\n  outputs: [{name: ckpt, path: /out/x, destination: \"s3://bucket/edited/\"}]\n")
		r.sh("stager run --dry-run -f edited.yaml")
	}}},
	"reference/api.md": {{begins: "curl --unix-socket", run: func(r *readme, block string) {
		_, err := exec.LookPath("curl")
		live.Require(r.t, "curl", err)
		r.write("plan.yaml", planHead+"\n  outputs: [{name: ckpt, path: "+r.work+"/served, destination: \"s3://bucket/api/\"}]\n")
		r.daemon(func() { r.types(block) })
	}}},
	"reference/output.md": {{begins: "stager ls -R -o json", run: func(r *readme, block string) {
		r.program("jq", `exec python3 -c 'import json, sys; [print(json.loads(line)["key"]) for line in sys.stdin]'`)
		r.sh("stager push shards/ s3://datasets/train/")
		if got := r.sh(strings.TrimSpace(block)); !strings.Contains(got, "train-00.tar\n") {
			r.t.Errorf("got %q, want the keys", got)
		}
	}}},
}

const planHead = "apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: job}\nspec:"

// pagesRunAsPrinted walks the blocks of all pages of docs. Each is run here as it stands, with
// only addresses replaced, by another test, or is marked as an illustration.
func pagesRunAsPrinted(t *testing.T) {
	r := newReadme(t)
	r.places = strings.NewReplacer("s3://bucket/", "s3://runs/", "/newest", r.work+"/newest", "/out/", r.work+"/out/", "/run/stager/stager.sock", r.work+"/s")
	left := make(map[string]bool)
	for page := range pageBlocks {
		left[page] = true
	}
	for page := range pagesElsewhere {
		left[page] = true
	}
	err := filepath.WalkDir("../docs", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page := strings.TrimPrefix(path, "../docs/")
		delete(left, page)
		blocks := blocksOf(string(text))
		if elsewhere, ok := pagesElsewhere[page]; ok {
			elsewhere.runsAll(t, page, blocks)
			return nil
		}
		all := pageBlocks[page]
		for _, b := range blocks {
			begins := strings.SplitN(b, "\n", 2)[0]
			if len(all) == 0 || !strings.HasPrefix(b, all[0].begins) {
				t.Errorf("docs/%s has a block that begins with %q, which nothing runs: add it here, or the line %s before it", page, begins, illustration)
				continue
			}
			t.Run(page+" "+all[0].begins, func(t *testing.T) {
				r.t = t
				all[0].run(r, b)
			})
			all = all[1:]
		}
		for _, b := range all {
			t.Errorf("docs/%s has no block that begins with %q after those before it", page, b.begins)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for page := range left {
		t.Errorf("there is no page docs/%s", page)
	}
}

// runsAll checks that the test of a page runs these blocks.
func (b readmeBlock) runsAll(t *testing.T, page string, blocks []string) {
	t.Helper()
	named, err := exec.Command("grep", "-rlF", "func "+b.by+"(", "--include=*_test.go", ".", "../cmd").Output()
	if err != nil || len(named) == 0 {
		t.Errorf("%s is to run docs/%s, and does not exist", b.by, page)
	}
	for _, block := range blocks {
		typed := strings.HasPrefix(block, "$ ") || b.begins != "" && strings.HasPrefix(block, b.begins)
		if !typed && b.by != readmeTest && page != "reference/cli.md" && !strings.HasPrefix(page, "start/") {
			t.Errorf("docs/%s: %s does not run the block that begins with %.60q: write its commands after a $, or the line %s before it", page, b.by, block, illustration)
		}
	}
}

var fence = regexp.MustCompile("^```([a-z]*)$")

// blocksOf returns the blocks of a page between fences, and those that are indented, without those
// that are no commands and those that are marked.
func blocksOf(page string) (blocks []string) {
	var block []string
	language, fenced, marked, before := "", false, false, ""
	end := func() {
		if len(block) > 0 && !marked && !notCommands[language] {
			blocks = append(blocks, strings.Join(block, "\n")+"\n")
		}
		if len(block) > 0 {
			marked = false
		}
		block, language = nil, ""
	}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		code, indented := strings.CutPrefix(line, "    ")
		found := fence.FindStringSubmatch(line)
		switch {
		case found != nil && !fenced:
			end()
			fenced, language = true, found[1]
		case found != nil:
			end()
			fenced = false
		case fenced:
			block = append(block, line)
		case indented && (before == "" || len(block) > 0):
			block = append(block, code)
		default:
			end()
			if line != "" {
				marked = line == illustration
			}
		}
		before = line
	}
	end()
	return blocks
}

func TestBlocksOfPages(t *testing.T) {
	page := "a\n\n    $ one\n    two\n\ntext\n\n" + illustration + "\n\n    three\n\n```sh\nfour\n```\n\n" + illustration + "\n```sh\nfive\n```\n\n```text\nsix\n```\n\n" + illustration + "\n\ntext\n\n    seven\n"
	got := blocksOf(page)
	if want := "$ one\ntwo\n|four\n|seven\n"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
	}
}

// listsRecords types lines about the records of a job.
func (r *readme) listsRecords(block string) {
	for _, name := range []string{"nodes/members/000000.json", "nodes/restores/uid/000001.json", "step-00000100/parts/view/00000001/000000.json"} {
		r.write("job/"+name, "{}")
	}
	r.sh("stager push job/ s3://bucket/runs/job/")
	r.types(block)
}

// completes runs the three lines of Python that complete a checkpoint, and expects it in the store.
func (r *readme) completes(block string) {
	r.t.Helper()
	r.write("plan.yaml", planHead+"\n  outputs: [{name: ckpt, path: "+r.work+"/out, destination: \"s3://bucket/python/\"}]\n")
	r.write("out/step-500.tmp/model", "of a trainer")
	r.write("complete.py", "import os, subprocess\n"+block)
	r.daemon(func() { r.sh("python3 complete.py") })
	r.sh("stager restore --step 500 s3://bucket/python/ completed && grep -q 'of a trainer' completed/model")
}

// annotates injects a Job that has the annotation.
func (r *readme) annotates(block string) {
	r.t.Helper()
	r.write("annotated.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train\n  annotations:\n    "+block+
		"spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: trainer}]}}}\n")
	if got := r.sh("stager inject -f annotated.yaml --image registry.example.com/stager:1"); !strings.Contains(got, "s3-write") {
		r.t.Errorf("got\n%s\nwant the Secret of the annotation in it", got)
	}
}
