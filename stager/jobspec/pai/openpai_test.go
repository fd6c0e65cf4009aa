package pai

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/internal/golden"
	"github.com/stager-dev/stager/stager/jobspec"
)

// partial are the files of testdata/openpai that are not whole jobs, with the reason.
var partial = map[string]string{
	"v1/examples_chainer_README.md.6b4041.json":                                         "a fragment: the first line is missing",
	"v1/src_end-to-end-test_etc_tensorflow.json":                                        "a template: a script replaces HDFS_URI",
	"v2/contrib_api-stress-test_roles_locust_config_files_job.yml":                      "a template: a script replaces {{jobname}}",
	"v2/docs_manual_cluster-user_how-to-use-advanced-job-settings.md.13760.yaml":        "invalid YAML: a comment lost its #",
	"v2/docs_zh_CN_manual_cluster-user_how-to-use-advanced-job-settings.md.94da57.yaml": "invalid YAML: a comment lost its #",
	"v2/src_kube-runtime_test_docker_image_acr_registry.yaml":                           "a fragment: its secrets are in another document",
	"v2/src_kube-runtime_test_docker_image_auth.yaml":                                   "a fragment: its secrets are in another document",
}

// leastConverted is the share of whole jobs that must be converted, in percent.
const leastConverted = 95

// TestPublicJobs converts public jobs from the history of OpenPAI's repository. The table next to them
// lists for each file what it becomes, or the sentence that refuses it.
func TestPublicJobs(t *testing.T) {
	opts := here
	opts.Inject.CheckURL = func(url string) error { // as the command does with its registry of protocols
		if !strings.Contains(url, "://") {
			return errors.New("not a URL")
		}
		return nil
	}
	var table strings.Builder
	for _, version := range []string{"v1", "v2"} {
		files, err := filepath.Glob("testdata/openpai/" + version + "/*")
		if err != nil || len(files) < 50 {
			t.Fatalf("got %d files of %s and the error %v, want 50 files at least", len(files), version, err)
		}
		whole, converted := 0, 0
		for _, file := range files {
			name := version + "/" + path.Base(file)
			why, part := partial[name]
			if !part {
				whole++
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			row, ok := "", false
			t.Run(name, func(t *testing.T) { row, ok = public(t, text, opts) })
			switch {
			case ok && part:
				t.Errorf("%s is converted, but listed as no whole job", name)
			case ok:
				converted++
			case part:
				row += " (" + why + ")"
			}
			fmt.Fprintf(&table, "%s: %s\n", name, row)
		}
		fmt.Fprintf(&table, "%s: %d files, %d whole jobs, %d converted\n", version, len(files), whole, converted)
		if converted*100 < whole*leastConverted {
			t.Errorf("%s: %d of %d whole jobs are converted, want %d %%", version, converted, whole, leastConverted)
		}
	}
	golden.File(t, "testdata/openpai/TABLE", []byte(table.String()))
}

// public converts a job and returns its row of the table, and whether it was converted.
func public(t *testing.T, text []byte, opts Options) (row string, ok bool) {
	t.Helper()
	input := bytes.Clone(text)
	result, err := Convert(text, opts)
	if !bytes.Equal(text, input) {
		t.Error("Convert changes its input")
	}
	if err != nil {
		var faults jobspec.Faults
		if result != nil || !errors.As(err, &faults) {
			t.Errorf("got %v, %v, want faults alone", result, err)
		}
		for _, f := range faults {
			if f.Line == 0 || f.Column == 0 {
				t.Errorf("got %s, want a line and a column", f)
			}
		}
		return "refused: " + strings.ReplaceAll(err.Error(), "\n", "; "), false
	}
	again, err := jobspec.Inject(result.Output, jobspec.Options{JobPolicies: true})
	if err != nil || !bytes.Equal(again.Output, result.Output) {
		t.Errorf("a second injection changes the manifests, or is refused: %v", err)
	}
	c := &conversion{reader: &reader{text: text}, opts: opts, root: podRoot}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	for _, r := range c.roles {
		if task, err := Local(text, r.name, r.tasks-1, "/work", opts); err != nil || len(task.Command) == 0 {
			t.Errorf("task %s/%d does not run locally: %v", r.name, r.tasks-1, err)
		}
	}
	kind, n := "Job", 1
	if all := decodes(t, result.Output); all.set != nil {
		kind, n = "JobSet", len(all.set.Spec.ReplicatedJobs)
	}
	if n != len(c.roles) {
		t.Errorf("got %d Jobs, want one for each of %d roles", n, len(c.roles))
	}
	return fmt.Sprintf("%s, task roles: %d, tasks: %d", kind, len(c.roles), c.tasks()), true
}
