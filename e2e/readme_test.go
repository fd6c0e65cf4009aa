package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// readmeBlock is a block of the README: how it begins, and what runs it as it is printed.
type readmeBlock struct {
	begins string
	run    func(*readme, string)
	by     string // a test elsewhere that runs it; "" with run
}

const loaders = "TestLoadersOfTheReadmeRunAsPrinted"

// readmePages are the README and the pages that continue it, each with all its blocks, in their
// order. They are typed one after the other, in one directory.
var readmePages = []struct {
	file   string
	blocks []readmeBlock
}{
	{"../README.md", []readmeBlock{
		{begins: "apt install cifs-utils", run: (*readme).othersDo},
		{begins: "sh install.sh", by: "TestInstallPageRunsAsPrinted"},
		{begins: "# plan.yaml\n", run: func(r *readme, block string) { r.write("plan.yaml", block) }},
		{begins: "stager run -f plan.yaml -- python train.py", run: (*readme).types},
		{begins: "# job.yaml: ", run: (*readme).jobSpec},
		{begins: "stager inject -f job.yaml | kubectl", run: (*readme).inject},
		{begins: "# PyTorch (pip install ./python)", by: loaders},
		{begins: "stager commit ckpt", run: (*readme).commit},
		{begins: "stager check smb://", run: (*readme).check},
		{begins: "make demo", run: (*readme).makes},
		{begins: "make test", run: (*readme).makes},
	}},
	{"../docs/guides/check-a-store.md", []readmeBlock{{begins: "smb://nobody@server/data/scratch, checked", run: (*readme).checked}}},
	{"../docs/guides/containers.md", []readmeBlock{
		{begins: "initContainers:\n- name: stage\n", run: (*readme).initContainer},
		{begins: "# plan.yaml\n", run: func(r *readme, block string) { r.write("plan.yaml", block) }},
		{begins: "initContainers:\n- name: stager\n", run: (*readme).sidecar},
	}},
	{"../docs/guides/read-shards.md", []readmeBlock{
		{begins: "from stager.torch import SampleDataset", by: loaders},
		{begins: "from stager.torch import ShardDataset", by: loaders},
		{begins: "from stager import batches", by: loaders},
		{begins: "while p=$(stager next", by: loaders},
		{begins: "until [ -e", by: loaders},
		{begins: "stager sample train", run: (*readme).sample},
	}},
	{"../docs/guides/command-line.md", []readmeBlock{
		{begins: "stager ls s3://datasets", run: (*readme).types},
		{begins: "stager push --commit", run: (*readme).types},
		{begins: "stager status", run: func(r *readme, block string) { r.daemon(func() { r.types(block) }) }},
		{begins: "stager copy s3://datasets", run: (*readme).types},
		{begins: "stager fanout", run: (*readme).fanout},
		{begins: "stager pack", run: (*readme).types},
	}},
	{"../docs/guides/openpai.md", []readmeBlock{{begins: "stager pai convert job.json", run: (*readme).pai}}},
}

const readmeTest = "readmeRunsAsPrinted"

// TestRunsAsPrinted types what is printed for people to type. The three run one after another, since what
// is printed names the same buckets and ports, and beside the scripts.
func TestRunsAsPrinted(t *testing.T) {
	t.Parallel()
	t.Run("README", readmeRunsAsPrinted)
	t.Run("examples", examplesRunAsPrinted)
	t.Run("docs", pagesRunAsPrinted)
}

// readmeRunsAsPrinted walks the blocks of the README and of the pages that continue it, and
// runs each as it stands, in its own quoting, in one directory, with only addresses replaced. A
// block that nothing runs fails the test.
func readmeRunsAsPrinted(t *testing.T) {
	r := newReadme(t)
	for _, page := range readmePages {
		t.Run(filepath.Base(page.file), func(t *testing.T) { r.walk(t, page.file, page.blocks) })
	}
}

// walk runs the blocks of one page, and the commands within its sentences.
func (r *readme) walk(t *testing.T, file string, want []readmeBlock) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blocks := blocksOf(string(text))
	for i, block := range blocks {
		if i == len(want) || !strings.HasPrefix(block, want[i].begins) {
			t.Fatalf("block %d begins with %.60q, which nothing here runs", i, block)
		}
		b := want[i]
		if b.by != "" {
			named, err := exec.Command("grep", "-rlF", "func "+b.by+"(", "--include=*_test.go", ".").Output()
			if err != nil || len(named) == 0 {
				t.Errorf("%s is to run %.40q, and does not exist", b.by, block)
			}
			continue
		}
		t.Run(strings.Join(strings.Fields(b.begins)[:min(3, len(strings.Fields(b.begins)))], " "), func(t *testing.T) {
			r.t = t
			b.run(r, block)
		})
	}
	if len(blocks) != len(want) {
		t.Errorf("got %d blocks, want %d", len(blocks), len(want))
	}
	for _, inline := range regexp.MustCompile("`(stager [a-z]+ [^`]*(?:://|\\.yaml)[^`]*)`").FindAllStringSubmatch(string(text), -1) {
		t.Run(inline[1], func(t *testing.T) {
			r.t = t
			r.write("job.yaml", r.job) // a later block has another one
			r.typesExample(t, inline[1])
		})
	}
}

var testLink = regexp.MustCompile(`\[(Test\w+)\]\(([\w/.]+)\)`)

// The README names the tests that hold each promise. They must stand where its links lead.
func TestPromisesOfTheReadmeNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	links := testLink.FindAllStringSubmatch(string(text), -1)
	if len(links) < 8 {
		t.Errorf("got %d tests, want at least 8", len(links))
	}
	for _, link := range links {
		source, err := os.ReadFile(filepath.Join("..", link[2]))
		if err != nil || !strings.Contains(string(source), "\nfunc "+link[1]+"(") {
			t.Errorf("%s is not in %s (%v)", link[1], link[2], err)
		}
	}
}

// readme is the directory in which the README is typed.
type readme struct {
	t         *testing.T
	work      string
	places    *strings.Replacer
	env       []string
	lastCheck string
	job       string // the manifest that has the annotations
}

func newReadme(t *testing.T) *readme {
	t.Helper()
	work, err := os.MkdirTemp("", "readme-") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	r := &readme{t: t, work: work}
	r.places = strings.NewReplacer("/data/train", work+"/data/train", "/out ", work+"/out ", "/out\n", work+"/out\n", "/out/", work+"/out/", "/models/", work+"/models/",
		"/etc/stager/", work+"/", "hdfs://namenode:8020", "file://"+work+"/hdfs", "nfs://server/export", "file://"+work+"/nfs", "smb://nobody@server/data", "file://"+work+"/smb")
	r.env = append(os.Environ(), world.plain.Env()...)
	r.env = append(r.env, "PATH="+filepath.Join(work, "bin")+":"+filepath.Dir(world.stager)+":"+os.Getenv("PATH"),
		"STAGER_SOCKET="+filepath.Join(work, "s"), "STAGER_SAMPLE_DIR="+filepath.Join(work, "mixed"), "USER=alice")
	for _, bucket := range []string{"datasets", "runs"} {
		objects := filepath.Join(world.objects, bucket)
		t.Cleanup(func() { _ = os.RemoveAll(objects) })
		if err := errors.Join(os.RemoveAll(objects), os.MkdirAll(objects, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	r.program("kubectl", "cat >injected.yaml; grep -q '^kind:' injected.yaml || grep -q stager.dev injected.yaml")
	r.program("python", "mkdir -p out/.step-9 && echo weights >out/.step-9/model && mv out/.step-9 out/step-9")
	for i := range 20 {
		name := fmt.Sprintf("shards/%02d", i)
		r.write(name+".cls", fmt.Sprint(i))
		if out, err := exec.Command("tar", "-C", filepath.Join(work, "shards"), "-cf", filepath.Join(work, "shards", fmt.Sprintf("train-%02d.tar", i)), fmt.Sprintf("%02d.cls", i)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, name := range []string{"results/log.txt", "step-500/model", "out/step-12000/model", "nfs/imagenet/train/n01/a.jpg", "smb/scratch/x", "model.safetensors"} {
		r.write(name, "of "+name)
	}
	r.sh("stager push shards/ s3://datasets/imagenet/train/ && stager push model.safetensors s3://datasets/")
	return r
}

func (r *readme) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.work, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(r.places.Replace(text)), 0o644)); err != nil {
		r.t.Fatal(err)
	}
}

// program puts a script into the path, in place of a program that is not here.
func (r *readme) program(name, script string) {
	r.t.Helper()
	r.write("bin/"+name, "#!/bin/sh\nset -e\n"+script+"\n")
	if err := os.Chmod(filepath.Join(r.work, "bin", name), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *readme) command(line string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), "bash", "-o", "pipefail", "-c", r.places.Replace(line))
	cmd.Dir, cmd.Env = r.work, r.env
	return cmd
}

// sh types a line, which must succeed, and returns what it prints.
func (r *readme) sh(line string) string {
	r.t.Helper()
	cmd := r.command(line)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s%s", line, err, out, stderr.String())
	}
	return string(out)
}

// types types a block, line by line.
func (r *readme) types(block string) {
	r.t.Helper()
	for line := range strings.Lines(block) {
		r.sh(strings.TrimSuffix(line, "\n"))
	}
}

// othersDo is a block of what people did before.
func (r *readme) othersDo(string) {}

// makes looks for the targets: CI makes them.
func (r *readme) makes(block string) {
	r.t.Helper()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(block) {
		if target := strings.Fields(line)[1]; !regexp.MustCompile(`(?m)^` + target + `:`).Match(text) {
			r.t.Errorf("the Makefile has no target %s", target)
		}
	}
}

// jobSpec writes the job that the next block is about.
func (r *readme) jobSpec(block string) {
	r.job = "apiVersion: batch/v1\nkind: Job\n" + block + "  name: train\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n      - {name: main, image: trainer}\n"
	if err := os.WriteFile(filepath.Join(r.work, "job.yaml"), []byte(r.job), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *readme) inject(block string) {
	r.t.Helper()
	before, err := os.ReadFile(filepath.Join(r.work, "job.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(block) {
		if out := r.sh(line); strings.Contains(line, "uninject") && out != string(before) {
			r.t.Errorf("uninjected it is\n%s\nwant\n%s", out, before)
		}
	}
}

func (r *readme) pai(block string) {
	r.write("job.json", `{"jobName": "demo", "image": "trainer", "taskRoles": [{"name": "worker", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 512, "gpuNumber": 0, "command": "echo trained"}]}`)
	for line := range strings.Lines(block) {
		if strings.Contains(line, "--run-local") {
			r.sh(line)
			continue
		}
		cmd := exec.Command("bash", "-o", "pipefail", "-c", line) // the addresses are those of a cluster
		cmd.Dir, cmd.Env = r.work, r.env
		if out, err := cmd.CombinedOutput(); err != nil {
			r.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}

// list is a list that a block of YAML has under a key, such as args.
func (r *readme) list(block, key string) (words []string) {
	r.t.Helper()
	found := regexp.MustCompile(key + `: \[(.*?)\]`).FindStringSubmatch(r.places.Replace(block))
	if found == nil {
		r.t.Fatalf("the block has no %s:\n%s", key, block)
	}
	for _, word := range strings.Split(found[1], ", ") {
		words = append(words, strings.Trim(word, `"`))
	}
	return words
}

// initContainer runs the container's command; the window of later blocks has the directory.
func (r *readme) initContainer(block string) {
	r.t.Helper()
	cmd := r.command("stager \"$@\"")
	cmd.Args = append(append(cmd.Args, "stager"), r.list(block, "args")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	if found, _ := filepath.Glob(filepath.Join(r.work, "data/train/*.tar")); len(found) != 20 {
		r.t.Errorf("got %d shards, want 20", len(found))
	}
	if err := os.RemoveAll(filepath.Join(r.work, "data")); err != nil {
		r.t.Fatal(err)
	}
}

// sidecar runs the container's command until its probe succeeds, and ends it as a pod does.
func (r *readme) sidecar(block string) {
	r.t.Helper()
	args := r.list(block, "args")
	probe := regexp.MustCompile(`startupProbe: {httpGet: {path: (/\w+),`).FindStringSubmatch(block)
	if probe == nil {
		r.t.Fatalf("the block has no probe:\n%s", block)
	}
	address, err := ports.Free("127.0.0.1")
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.Index(args, ":9090")
	if i < 0 {
		r.t.Fatalf("got %q, want :9090 among them", args)
	}
	args[i] = address
	r.runs(args, func() bool {
		resp, err := http.Get("http://" + address + probe[1])
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, func() {
		stop := r.list(block, "command")
		if stop[0] != "/stager" {
			r.t.Errorf("got the command %q, want one of /stager", stop)
		}
		r.sh("stager " + strings.Join(stop[1:], " "))
	})
}

// runs runs stager in the background while something is done, and ends it with SIGTERM.
func (r *readme) runs(args []string, ready func() bool, do func()) {
	r.t.Helper()
	cmd := exec.Command(world.stager, args...)
	var said strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.work, r.env, &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			r.t.Errorf("stager %v: %v\n%s", args, err, said.String())
		}
	}()
	for until := time.Now().Add(patience); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			r.t.Errorf("stager %v is not ready", args)
			return
		}
	}
	do()
}

// daemon runs the plan meanwhile.
func (r *readme) daemon(do func()) {
	r.t.Helper()
	r.runs([]string{"run", "-f", "plan.yaml"}, func() bool { return r.command("stager status --ready").Run() == nil }, do)
}

func (r *readme) sample(block string) {
	r.t.Helper()
	r.daemon(func() {
		socket := filepath.Join(r.work, "sample-train.sock")
		r.runs(strings.Fields(block)[1:], func() bool { return r.command("stager status --ready --socket "+socket).Run() == nil }, func() {})
	})
}

func (r *readme) commit(block string) {
	r.t.Helper()
	r.daemon(func() { r.types(block) })
	r.sh("stager restore --step 12000 s3://runs/imagenet/ committed && grep -q 'of out/step-12000/model' committed/model")
}

func (r *readme) fanout(block string) {
	r.t.Helper()
	cmd := exec.Command("bash", "-c", block) // the addresses are those of a cluster
	cmd.Dir, cmd.Env = r.work, r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(r.work, "job.yaml")); err != nil || !strings.Contains(string(text), "kind: Job") {
		r.t.Errorf("got %s, %v; want a Job", text, err)
	}
}

func (r *readme) check(block string) { r.lastCheck = r.sh(strings.TrimSpace(block)) }

// checked compares the report that is printed with the one that came, by its headings.
func (r *readme) checked(block string) {
	for line := range strings.Lines(block) {
		heading := regexp.MustCompile(`^(Facts|Speed, measured from here|[A-Z][a-z ,]+)\n$`).MatchString(line)
		if heading && !strings.Contains(r.lastCheck, "\n"+line) {
			r.t.Errorf("the report has no heading %q:\n%s", line, r.lastCheck)
		}
	}
}
