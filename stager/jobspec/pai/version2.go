package pai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stager-dev/stager/stager/jobspec"
)

// secondFormat matches a job of OpenPAI's second format: YAML with the protocol version at the top.
var secondFormat = regexp.MustCompile(`(?m)^[ \t]*[{]?[ \t]*["']?protocolVersion["']?[ \t]*:[ \t]*["']?2\b`)

// version2 parses a job of the second format.
type version2 struct {
	*reader
	parameters, secrets *yaml.Node
	prerequisites       map[string]map[string]*yaml.Node // by type and name
	named               map[string]*yaml.Node            // prerequisites by name only
	deployment          *yaml.Node                       // taskRoles of the selected deployment
	plugins             []*yaml.Node                     // runtime plugins
	auths               map[*yaml.Node]bool              // auths of images that were read
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// job2 parses a job. Faults are added to the reader.
func (r *reader) job2() *job {
	if len(r.text) > fileMax {
		r.faultInFile("the file has %d bytes, and the limit is %d; move long scripts and data out of the job", len(r.text), fileMax)
		return nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(r.text, &doc); err != nil || len(doc.Content) == 0 {
		f := jobspec.Fault{Text: fmt.Sprintf("this is not YAML: %v", err)}
		if m := yamlLine.FindStringSubmatch(fmt.Sprint(err)); m != nil {
			f.Line, _ = strconv.Atoi(m[1])
			f.Text = "this is not YAML: " + m[2]
		}
		r.faults = append(r.faults, r.explainedYAML(f))
		return nil
	}
	v := &version2{reader: r, prerequisites: make(map[string]map[string]*yaml.Node), named: make(map[string]*yaml.Node), auths: make(map[*yaml.Node]bool)}
	root := doc.Content[0]
	j := v.job(root)
	v.twice(root)
	if at := bytes.Index(r.text, []byte("{{")); at >= 0 && len(r.faults) > 0 {
		r.faults = nil
		r.fault(at, "%s", ofTemplate)
	}
	return j
}

// offset returns the offset of a node in the file.
func (v *version2) offset(n *yaml.Node) int {
	line, at := 1, 0
	for i, b := range v.reader.text {
		if line == n.Line {
			at = i
			break
		}
		if b == '\n' {
			line++
			at = i + 1
		}
	}
	return at + max(n.Column-1, 0)
}

func (v *version2) wrong(n *yaml.Node, form string, args ...any) { v.fault(v.offset(n), form, args...) }

// get returns a nested field of a mapping, or nil if it is missing or null.
func get(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		if n == nil {
			return nil
		}
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		var found *yaml.Node
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				found = n.Content[i+1]
			}
		}
		n = found
	}
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n != nil && n.Tag == "!!null" {
		return nil
	}
	return n
}

// pairs returns the fields of a mapping, in order.
func (v *version2) pairs(n *yaml.Node, what string) (names []string, values []*yaml.Node) {
	if n == nil {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		v.wrong(n, "%s is not a mapping; write one name: value per line", what)
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		names, values = append(names, n.Content[i].Value), append(values, n.Content[i+1])
	}
	return names, values
}

func (v *version2) text(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		v.wrong(n, "%s is not a string; write a single value", what)
	}
	return n.Value
}

func (v *version2) number(n *yaml.Node, what string, fallback, least int) int {
	if n == nil {
		return fallback
	}
	i, err := strconv.Atoi(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		v.wrong(n, "%s is %q; write a whole number", what, n.Value)
		return fallback
	}
	if i < least {
		v.wrong(n, "%s is %d, which is too small; write %d or more", what, i, least)
	}
	return i
}

func (v *version2) job(root *yaml.Node) *job {
	if root.Kind != yaml.MappingNode {
		v.wrong(root, "the job is not a mapping; write the fields of protocol version 2")
		return nil
	}
	j := &job{second: true, at: make(map[string]int)}
	name := get(root, "name")
	j.name = v.text(name, "name")
	if name == nil {
		v.wrong(root, "the job has no name, which OpenPAI requires; add it")
	} else if !jobName.MatchString(j.name) {
		v.wrong(name, "name is %q; use only %s", j.name, jobName.reported)
	}
	v.parameters, v.secrets = get(root, "parameters"), get(root, "secrets")
	v.readPrerequisites(root)
	if j.retries = v.number(get(root, "jobRetryCount"), "jobRetryCount", 0, always); j.retries == always {
		v.warn("jobRetryCount -2 has no equivalent: the job restarts after each failure, without limit, but not after a success; use a Deployment for a service")
		j.retries = endless
	}
	gang := get(root, "extras", "gangAllocation")
	j.gang = gang == nil || gang.Value != "false"
	j.virtualCluster = v.text(get(root, "defaults", "virtualCluster"), "defaults.virtualCluster")
	v.choose(root)
	v.readPlugins(root)
	names, roles := v.pairs(get(root, "taskRoles"), "taskRoles")
	if len(names) == 0 {
		v.wrong(root, "taskRoles is missing or empty; add at least one task role")
	}
	for i, name := range names {
		if t := v.role(j, name, roles[i], i == 0); t != nil {
			j.roles = append(j.roles, t)
		}
	}
	v.early(j)
	v.extras(root, j)
	v.unknown(root)
	return j
}

func (v *version2) readPrerequisites(root *yaml.Node) {
	list := get(root, "prerequisites")
	if list == nil {
		return
	}
	if list.Kind != yaml.SequenceNode {
		v.wrong(list, "prerequisites is not a list; write one prerequisite per item")
		return
	}
	for _, p := range list.Content {
		kind, name := v.text(get(p, "type"), "type"), v.text(get(p, "name"), "name")
		if v.prerequisites[kind] == nil {
			v.prerequisites[kind] = make(map[string]*yaml.Node)
		}
		if v.prerequisites[kind][name] != nil {
			v.wrong(p, "two prerequisites of type %s have the name %q; rename one", kind, name)
		}
		v.prerequisites[kind][name] = p
		v.named[name] = p
	}
}

// prerequisite returns the prerequisite that a field of a task role names, or nil.
func (v *version2) prerequisite(role *yaml.Node, field, kind string) *yaml.Node {
	n := get(role, field)
	if n == nil {
		return nil
	}
	p := v.prerequisites[kind][n.Value]
	if p == nil {
		v.wrong(n, "%s is %q, but there is no prerequisite of type %s with this name; add it to prerequisites", field, n.Value, kind)
	}
	return p
}

// choose selects the deployment that defaults name.
func (v *version2) choose(root *yaml.Node) {
	wanted := get(root, "defaults", "deployment")
	if wanted == nil {
		return
	}
	var names []string
	if all := get(root, "deployments"); all != nil {
		for _, d := range all.Content {
			n := get(d, "name")
			if n == nil {
				continue
			}
			if n.Value == wanted.Value {
				v.deployment = get(d, "taskRoles")
				return
			}
			names = append(names, n.Value)
		}
	}
	v.wrong(wanted, "the deployment %q does not exist; the deployments are: %s", wanted.Value, cmp.Or(strings.Join(names, ", "), "none"))
}

func (v *version2) role(j *job, name string, n *yaml.Node, first bool) *role {
	what := "task role " + name
	if n.Kind != yaml.MappingNode {
		v.wrong(n, "%s is not a mapping; write its fields, one per line", what)
		return nil
	}
	if !roleName.MatchString(name) {
		v.wrong(n, "the name of the task role is %q; use only %s", name, roleName.reported)
	}
	t := &role{name: name, at: v.offset(n), tasks: v.number(get(n, "instances"), what+": instances", 1, 1)}
	t.minFailed, t.reported.failed = v.completion(t, n, "minFailedInstances", 1)
	t.minSucceeded, t.reported.succeeded = v.completion(t, n, "minSucceededInstances", t.tasks)
	t.tries = v.number(get(n, "taskRetryCount"), what+": taskRetryCount", 0, always)
	if t.tries != 0 && j.gang {
		v.warn("%s: taskRetryCount %d has no effect, as in OpenPAI; write gangAllocation: false in extras", what, t.tries)
		t.tries = 0
	}
	if t.tries == always {
		v.warn("%s: taskRetryCount -2 has no equivalent: a task restarts after each failure, without limit, but not after a success", what)
		t.tries = endless
	}
	size := get(n, "resourcePerInstance")
	if size == nil {
		v.wrong(n, "%s has no resourcePerInstance, which OpenPAI requires; add it", what)
	}
	t.cpu = v.number(get(size, "cpu"), what+": cpu", 1, 1)
	t.memory = v.number(get(size, "memoryMB"), what+": memoryMB", leastMemory, leastMemory)
	t.gpu = v.number(get(size, "gpu"), what+": gpu", 0, 0)
	shm := get(n, "extraContainerOptions", "shmMB")
	t.shm, t.reported.shm = v.number(shm, what+": shmMB", usualShared2, 1), "0"
	if shm != nil {
		t.reported.shm = strconv.Itoa(t.shm)
	}
	if ib := get(n, "extraContainerOptions", "infiniband"); ib != nil && ib.Value == "true" {
		v.warn("%s: infiniband is ignored; OpenPAI requested one rdma/hca: request the resource of your cluster's device plugin in the pod", what)
	}
	labels, counts := v.pairs(get(size, "ports"), what+": ports")
	for i, label := range labels {
		t.ports = append(t.ports, portType{label: label, number: v.number(counts[i], "port "+label, 1, 1), at: v.offset(counts[i])})
	}
	for _, label := range []string{"http", "ssh"} {
		if !slices.Contains(labels, label) {
			t.ports = append(t.ports, portType{label: label, number: 1, at: t.at})
		}
	}
	v.image(j, t, n)
	v.commands(t, n, first)
	return t
}

// completion returns a count of tasks, and its value in OpenPAI's variables. A missing, null or
// zero field has the default, and -1 is never.
func (v *version2) completion(t *role, n *yaml.Node, field string, fallback int) (count int, reported string) {
	count = v.number(get(n, "completion", field), "task role "+t.name+": "+field, fallback, -1)
	if count == 0 {
		count = fallback
	}
	reported = strconv.Itoa(count)
	switch {
	case count < 0:
		return never, reported
	case count > t.tasks:
		v.warn("task role %s: %s is %d, but there are only %d instances, so it is never reached", t.name, field, count, t.tasks)
		return never, reported
	}
	return count, reported
}

// early warns if there are several roles and the end of one of them ends the job.
func (v *version2) early(j *job) {
	if len(j.roles) < 2 {
		return
	}
	for _, t := range j.roles {
		if t.minSucceeded == t.tasks && !t.ignoresExit() {
			v.warn("task role %s: as in OpenPAI, the job ends and its other tasks are stopped when all tasks of this role have succeeded; to wait for the others, write minSucceededInstances: -1", t.name)
		}
	}
}

func (v *version2) image(j *job, t *role, n *yaml.Node) {
	p := v.prerequisite(n, "dockerImage", "dockerimage")
	switch {
	case p != nil:
		uri := get(p, "uri")
		if t.image = v.text(uri, "uri"); t.image == "" {
			v.wrong(p, "the docker image has no uri; add it")
			return
		}
		t.image = v.expand(uri, t.image, v.scope(n), 0)
		if auth := get(p, "auth"); auth != nil && !v.auths[auth] {
			v.auths[auth] = true
			v.registry(j, auth)
		}
	case get(n, "dockerImage") == nil:
		v.wrong(n, "task role %s has no dockerImage, which OpenPAI requires; add it", t.name)
	}
}

// registry adds the auth of an image to those of the job.
func (v *version2) registry(j *job, auth *yaml.Node) {
	field := func(name string) string {
		n := get(auth, name)
		if n == nil {
			return ""
		}
		return v.expand(n, v.text(n, name), map[string]*yaml.Node{"secrets": v.secrets}, 0)
	}
	r := registry{field("registryuri"), field("username"), field("password")}
	if r.user == "" || r.password == "" {
		v.wrong(auth, "auth has no username or no password; add both, as <%% $secrets.NAME %%>")
	}
	for _, other := range j.registries {
		if other.server == r.server && other != r {
			v.wrong(auth, "two images of one registry have different auths, but a pull secret holds one for each registry; use the same auth")
		}
	}
	j.registries = append(j.registries, r)
}

// commands generates the script of a role. It runs the role's own commands between the pre- and
// post-commands of the deployment, and those between the commands of plugins. As in OpenPAI the
// script ends at the first command that fails.
func (v *version2) commands(t *role, n *yaml.Node, first bool) {
	list := get(n, "commands")
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		v.wrong(n, "task role %s has no commands, which OpenPAI requires; add a list of them", t.name)
		return
	}
	all := slices.Clone(list.Content)
	if pre := get(v.deployment, t.name, "preCommands"); pre != nil {
		all = append(slices.Clone(pre.Content), all...)
	}
	if post := get(v.deployment, t.name, "postCommands"); post != nil {
		all = append(all, post.Content...)
	}
	scope := v.scope(n)
	before, after := v.callbacks(t, n, scope, first)
	lines := append([]string{"set -o errexit -o nounset -o pipefail"}, before...)
	lines = append(lines, v.lines(t, all, scope)...)
	t.command = strings.Join(append(lines, after...), "\n")
}

// lines returns commands with their references replaced.
func (v *version2) lines(t *role, commands []*yaml.Node, scope map[string]*yaml.Node) []string {
	lines := make([]string, len(commands))
	for i, c := range commands {
		text := strings.TrimSpace(v.text(c, "a command"))
		lines[i] = v.expand(c, text, scope, 0)
		t.secret = t.secret || strings.Contains(text, "$secrets") && lines[i] != text
	}
	return lines
}

// extras stores extras unchanged and handles what they request.
func (v *version2) extras(root *yaml.Node, j *job) {
	extras := get(root, "extras")
	if extras == nil {
		return
	}
	var value any
	if err := extras.Decode(&value); err != nil {
		v.wrong(extras, "extras cannot be read: %v", err)
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		v.wrong(extras, "extras cannot be written as JSON: %v", err)
		return
	}
	j.extras = string(text)
	v.storages(extras, j)
	v.unsupported(extras)
	kinds := make(map[string]bool)
	for _, t := range j.roles {
		for _, field := range []string{"gpuType", "skuType"} {
			if n := get(extras, "hivedScheduler", "taskRoles", t.name, field); n != nil {
				kinds[n.Value], j.gpuType = true, n.Value
			}
		}
	}
	if len(kinds) > 1 {
		j.gpuType = ""
		v.warn("hivedScheduler requests several kinds of GPU, which select no nodes; write a nodeSelector for each task role")
	}
}
