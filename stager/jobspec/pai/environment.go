package pai

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// section is a group of related variables with a comment.
type section struct {
	comment   string
	variables []variable
}

// Sources of values that Kubernetes sets in a pod.
const (
	indexField = "metadata.labels['batch.kubernetes.io/job-completion-index']"
	ipField    = "status.podIP"
)

// environment returns the variables of a task: every name in OpenPAI's job reference, the names in
// its examples and earlier versions, and the job's own. index is the task's index, or -1 if
// Kubernetes sets it.
func (c *conversion) environment(t *role, index int) []section {
	return []section{
		{"of the job", c.jobVariables()},
		{"of its task roles", c.roleVariables()},
		{"of this task", c.taskVariables(t, index)},
		{"jobEnvs", c.env},
	}
}

// jobVariables returns the variables that are equal for all tasks.
func (c *conversion) jobVariables() []variable {
	name := c.name
	if c.second && c.opts.User != "" {
		name = c.opts.User + "~" + name // as OpenPAI names its frameworks
	}
	all := []variable{
		{name: "PAI_JOB_NAME", value: name},
		{name: "PAI_USER_NAME", value: c.opts.User},
		{name: "PAI_DEFAULT_FS_URI", value: c.opts.DefaultFS},
	}
	if c.second {
		return append(all, variable{name: "PAI_FRAMEWORK_NAME", value: name},
			variable{name: "PAI_USERNAME", value: c.opts.User},
			variable{name: "PAI_VIRTUAL_CLUSTER", value: cmp.Or(c.virtualCluster, "default")})
	}
	all = append(all, variable{name: "PAI_JOB_VC_NAME", value: c.virtualCluster})
	for _, dir := range []struct {
		name, url, path string
		staged          bool
	}{
		{"PAI_DATA", c.dataDir, c.dataPath(), c.staged()},
		{"PAI_OUTPUT", c.outputDir, c.outputPath(), c.staged()},
		{"PAI_CODE", c.codeDir, c.codePath(), c.staged()},
	} {
		value := dir.url
		if dir.staged && dir.url != "" {
			value = dir.path
		}
		all = append(all, variable{name: dir.name + "_DIR", value: value}, variable{name: dir.name + "_URI", value: dir.url})
	}
	return all
}

// roleVariables returns the variables that describe all tasks to every task.
func (c *conversion) roleVariables() []variable {
	names := make([]string, len(c.roles))
	for i, t := range c.roles {
		names[i] = t.name
	}
	tasks := 0
	all := []variable{
		{name: "PAI_TASK_ROLE_COUNT", value: strconv.Itoa(len(c.roles))},
		{name: "PAI_TASK_ROLE_LIST", value: strings.Join(names, ",")},
	}
	var instances []string
	for _, t := range c.roles {
		tasks += t.tasks
		hosts := make([]string, t.tasks)
		var each []variable
		for i := range t.tasks {
			host := c.host(t, i)
			each = append(each, variable{name: fmt.Sprintf("PAI_HOST_IP_%s_%d", t.name, i), value: host})
			for k, p := range t.ports {
				first := c.ports[t.name][i][k]
				if p.label == "http" {
					hosts[i] = host + ":" + strconv.Itoa(first)
				}
				each = append(each, variable{name: fmt.Sprintf("PAI_PORT_LIST_%s_%d_%s", t.name, i, p.label), value: portList(first, p.number)})
				if c.second {
					each = append(each, variable{name: fmt.Sprintf("PAI_%s_%d_%s_PORT", t.name, i, p.label), value: portList(first, p.number)})
				}
			}
			instances = append(instances, fmt.Sprintf("%s:%d", t.name, i))
		}
		all = append(
			all,
			variable{name: "PAI_TASK_ROLE_TASK_COUNT_" + t.name, value: strconv.Itoa(t.tasks)},
			variable{name: "PAI_TASK_ROLE_" + t.name + "_HOST_LIST", value: strings.Join(hosts, ",")},
			variable{name: "PAI_RESOURCE_" + t.name, value: fmt.Sprintf("%d,%d,%d,%s", t.gpu, t.cpu, t.memory, t.reported.shm)},
			variable{name: "PAI_MIN_FAILED_TASK_COUNT_" + t.name, value: t.reported.failed},
			variable{name: "PAI_MIN_SUCCEEDED_TASK_COUNT_" + t.name, value: t.reported.succeeded},
		)
		all = append(all, each...)
	}
	all = append(all, variable{name: "PAI_TASKS_NUM", value: strconv.Itoa(tasks)})
	if c.second {
		all = append(
			all,
			variable{name: "PAI_JOB_TASK_COUNT", value: strconv.Itoa(tasks)},
			variable{name: "PAI_TASK_ROLES_NUM", value: strconv.Itoa(len(c.roles))},
			variable{name: "PAI_JOB_TASK_ROLE_COUNT", value: strconv.Itoa(len(c.roles))},
			variable{name: "PAI_JOB_TASK_ROLE_LIST", value: strings.Join(names, ",")},
			variable{name: "PAI_TASK_ROLE_INSTANCES", value: strings.Join(instances, ",")},
		)
	}
	return c.reachable(all)
}

// orNull formats a count of tasks as OpenPAI's variables do.
func orNull(count int) string {
	if count == never {
		return ""
	}
	return strconv.Itoa(count)
}

// taskVariables returns the variables that describe a task to itself.
func (c *conversion) taskVariables(t *role, index int) []variable {
	place, ip, which := variable{field: indexField}, variable{field: ipField}, 0
	if c.local {
		which = index
		place, ip = variable{value: strconv.Itoa(index)}, variable{value: c.host(t, index)}
	}
	all := []variable{
		{name: "PAI_CURRENT_TASK_ROLE_NAME", value: t.name},
		{name: "PAI_TASK_ROLE_NAME", value: t.name},
		place.as("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"),
		place.as("PAI_TASK_INDEX"),
		ip.as("PAI_CURRENT_CONTAINER_IP"),
		ip.as("PAI_CONTAINER_HOST_IP"),
	}
	every := "" // port list, as label:1,2;
	for k, p := range t.ports {
		ports := portList(c.ports[t.name][which][k], p.number)
		all = append(all, variable{name: "PAI_CONTAINER_HOST_" + p.label + "_PORT_LIST", value: ports})
		every += p.label + ":" + ports + ";"
		first, _, _ := strings.Cut(ports, ",")
		switch {
		case p.label == "ssh":
			all = append(all, variable{name: "PAI_CONTAINER_SSH_PORT", value: first})
		case p.label == "http" && c.second:
			all = append(all, variable{name: "PAI_CONTAINER_HOST_PORT", value: first}, variable{name: "PAI_CURRENT_CONTAINER_PORT", value: first})
		}
	}
	if c.second {
		all = append(all, variable{name: "PAI_CONTAINER_HOST_PORT_LIST", value: every})
		if t.gpu == 0 {
			all = append(all, variable{name: "NVIDIA_VISIBLE_DEVICES", value: "none"})
		}
	}
	return c.reachable(all)
}

func (v variable) as(name string) variable {
	v.name = name
	return v
}

var unreachable = regexp.MustCompile(`[^A-Za-z0-9_]`)

// reachable adds a copy with _ for each variable whose name contains a dot, from a role's name,
// because a shell cannot refer to it. Kubernetes does not allow ~ in names.
func (c *conversion) reachable(all []variable) (out []variable) {
	seen := map[string]bool{}
	for _, v := range all {
		plain := unreachable.ReplaceAllString(v.name, "_")
		for _, name := range []string{v.name, plain} {
			if !seen[name] && !strings.Contains(name, "~") {
				out = append(out, v.as(name))
				seen[name] = true
			}
		}
		if plain != v.name {
			c.warn("a shell cannot read $%s, so $%s is also set", v.name, plain)
		}
	}
	return out
}

// host returns the DNS name of a task in the cluster.
func (c *conversion) host(t *role, index int) string {
	switch {
	case c.local:
		return "127.0.0.1"
	case c.set:
		return fmt.Sprintf("%s-%s-0-%d.%s", c.names.job, c.names.roles[t.name], index, c.names.job)
	}
	return fmt.Sprintf("%s-%d.%s", c.names.job, index, c.names.job)
}

var used = regexp.MustCompile(`\$\{?(PAI_[A-Za-z0-9_]+)`)

// commands warns about variables that a command uses and nothing sets.
func (c *conversion) commands() {
	if len(c.faults) > 0 {
		return
	}
	for _, t := range c.roles {
		known := map[string]bool{}
		for _, s := range c.environment(t, 0) {
			for _, v := range s.variables {
				known[v.name] = true
			}
		}
		for _, m := range used.FindAllStringSubmatch(t.command, -1) {
			if !known[m[1]] {
				c.warn("task role %s: the command uses $%s, which is not set", t.name, m[1])
			}
		}
	}
}
