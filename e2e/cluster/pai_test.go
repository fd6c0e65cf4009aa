package cluster

import (
	"regexp"
	"slices"
	"testing"
)

var paiVariable = regexp.MustCompile(`\$\{?(PAI_\w+)`)

// TestOpenPAI converts the complete example of OpenPAI's job tutorial, comments and all,
// and asks the API server for what comes of it. Each variable that its commands use is
// then set in the container that runs them; -v lists them.
func TestOpenPAI(t *testing.T) {
	c := asked(t, apiServer)
	c.define(t)
	const file = "../../stager/jobspec/pai/testdata/tutorial.jsonc"
	tutorial := read(t, file)
	manifest := c.stager(t, tutorial, "pai", "convert", "-q", "--user", "alice", "--default-fs", "hdfs://namenode:8020", "--image", "x:1", "-")
	var roles []string
	for _, set := range c.takes(t, manifest) {
		jobs, _ := set.at("spec", "replicatedJobs").([]any)
		for _, job := range jobs {
			job := object(job.(map[string]any))
			name, _ := job["name"].(string)
			roles = append(roles, name)
			containers, _ := job.at("template", "spec", "template", "spec", "containers").([]any)
			for _, container := range containers {
				commandIsServed(t, name, object(container.(map[string]any)))
			}
		}
	}
	if len(roles) != 2 {
		t.Errorf("the task roles are %q, want ps_server and worker", roles)
	}
}

// commandIsServed looks for the variables of a container's command in its environment.
func commandIsServed(t *testing.T, role string, container object) {
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
		text += word + "\n"
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
