package cluster

import (
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
	"testing"
)

var paiVariable = regexp.MustCompile(`\$\{?(PAI_\w+)`)

// TestOpenPAI converts the complete example of OpenPAI's job tutorial, comments and all,
// and a job of the second format, and asks the API server for what comes of them. Each
// variable that their commands use is then set in the container that runs them; -v lists
// them.
func TestOpenPAI(t *testing.T) {
	c := asked(t, apiServer)
	c.define(t)
	for _, file := range []string{"tutorial.jsonc", "second.yaml"} {
		t.Run(file, func(t *testing.T) {
			job := read(t, "../../stager/jobspec/pai/testdata/"+file)
			c.converts(t, job)
		})
	}
}

// converts converts a job of OpenPAI that has two task roles.
func (c *cluster) converts(t *testing.T, job string) {
	manifest := c.stager(t, job, "pai", "convert", "-q", "--user", "alice", "--default-fs", "hdfs://namenode:8020", "--image", "x:1", "-")
	var roles []string
	scripts := make(map[string]string) // those with secrets in them
	objects := c.takes(t, manifest)
	for _, o := range objects {
		data, _ := o.at("data").(map[string]any)
		for name, text := range data {
			text, _ := text.(string)
			script, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			scripts[commandsPath+name] = string(script)
		}
	}
	for _, set := range objects {
		jobs, _ := set.at("spec", "replicatedJobs").([]any)
		for _, job := range jobs {
			job := object(job.(map[string]any))
			name, _ := job["name"].(string)
			roles = append(roles, name)
			containers, _ := job.at("template", "spec", "template", "spec", "containers").([]any)
			for _, container := range containers {
				commandIsServed(t, name, object(container.(map[string]any)), scripts)
			}
		}
	}
	if len(roles) != 2 {
		t.Errorf("the task roles are %q, want two", roles)
	}
}

// commandsPath is where a pod has the scripts of its job's Secret.
const commandsPath = "/pai/commands/"

// commandIsServed looks for the variables of a container's command in its environment.
func commandIsServed(t *testing.T, role string, container object, scripts map[string]string) {
	t.Helper()
	set := make(map[string]string)
	env, _ := container["env"].([]any)
	for _, v := range env {
		v, _ := v.(map[string]any)
		name, _ := v["name"].(string)
		set[name], _ = v["value"].(string)
		if field, ok := object(v).at("valueFrom", "fieldRef", "fieldPath").(string); ok {
			set[name] = "<" + field + ">"
		}
	}
	words, _ := container["command"].([]any)
	text := ""
	for _, word := range words {
		word, _ := word.(string)
		text += cmp.Or(scripts[word], word) + "\n"
	}
	var used []string
	for _, m := range paiVariable.FindAllStringSubmatch(text, -1) {
		used = append(used, m[1])
	}
	slices.Sort(used)
	used = slices.Compact(used)
	if len(used) < 5 {
		t.Errorf("%s: the command uses %q only:\n%s", role, used, text)
	}
	for _, name := range used {
		if set[name] == "" {
			t.Errorf("%s: the command uses $%s, which is not set", role, name)
		}
		t.Logf("%s: %s=%s", role, name, set[name])
	}
}
