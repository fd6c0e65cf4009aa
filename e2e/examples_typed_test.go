package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commandLines are the lines to type in the comment on top of an example.
var commandLines = regexp.MustCompile(`(?m)^(?:#|//) {5}(\S.*)$`)

// kubectlHere accepts what the examples pass to kubectl, and nothing else.
const kubectlHere = `case "$1 $2 $3" in
"apply -f -") cat >applied.yaml; grep -q 'stager.dev/status' applied.yaml ;;
"create secret generic") shift 4; for word; do case "$word" in --from-literal=*=?*) ;; *) exit 64 ;; esac; done ;;
*) exit 64 ;;
esac`

// examplesRunAsPrinted types each line of the examples, and of the page about them, into a
// shell as it stands, in a directory that has the examples. Only the directory /scratch and the
// room that the workstation's disk keeps free are replaced, in the file.
func examplesRunAsPrinted(t *testing.T) {
	r := newReadme(t)
	r.places = strings.NewReplacer() // every line as it stands
	if out, err := exec.Command("cp", "-r", "../examples", "../images", r.work).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.program("kubectl", kubectlHere)
	r.write("job.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: main, image: trainer}]}}\n")
	plan := filepath.Join(r.work, "examples", "workstation.plan.yaml")
	text, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	smaller := strings.NewReplacer("path: /scratch", "path: "+r.work+"/scratch", "minFree: 20G", "minFree: 1M")
	if err := os.WriteFile(plan, []byte(smaller.Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("../examples", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var lines []string
		if filepath.Ext(path) == ".md" {
			lines = strings.Split(strings.TrimSpace(strings.Join(blocksOf(string(text)), "")), "\n")
		} else {
			for _, found := range commandLines.FindAllStringSubmatch(string(text), -1) {
				lines = append(lines, found[1])
			}
		}
		t.Run(strings.TrimPrefix(path, "../examples/"), func(t *testing.T) {
			for _, line := range lines {
				r.typesExample(t, line)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.sh("stager restore s3://runs/imagenet/alice/ trained && grep -q '^60 ' trained/state") // three epochs of 20 shards
}

// typesExample types a line. Explain reports by its exit code whether a job fits; the codes of other
// commands are 0.
func (r *readme) typesExample(t *testing.T, line string) {
	t.Helper()
	cmd := r.command(line)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if strings.HasPrefix(line, "stager explain ") {
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || !strings.Contains(string(out), "\nVerdict: ") {
			t.Errorf("%s: %v, and no verdict\n%s%s", line, err, out, log.String())
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v\n%s%s", line, err, out, log.String())
	}
}
