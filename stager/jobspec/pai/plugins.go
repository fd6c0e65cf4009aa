package pai

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// pluginPrefix is the prefix of runtime plugins in prerequisites, and the key of the plugin list in
// extras.
const pluginPrefix = "com.microsoft.pai.runtimeplugin"

func (v *version2) readPlugins(root *yaml.Node) {
	list := get(root, "extras", pluginPrefix)
	if list == nil {
		return
	}
	if list.Kind != yaml.SequenceNode {
		v.wrong(list, "%s is not a list; write one plugin per item", pluginPrefix)
		return
	}
	v.plugins = list.Content
}

// callbacks returns the plugin commands to run before and after a role's own commands. The plugins
// are those of the role's prerequisites and the job's plugins that apply to the role. first reports
// whether the role is the first one.
func (v *version2) callbacks(t *role, n *yaml.Node, scope map[string]*yaml.Node, first bool) (before, after []string) {
	add := func(plugin string, settings, failure *yaml.Node) {
		var pre, post []*yaml.Node
		switch plugin {
		case "cmd":
			pre, post = v.commandsOf(settings)
		case "tensorboard":
			if first {
				before = append(before, v.tensorboard(settings, scope)...)
			}
			return
		default:
			return
		}
		ignore := failure != nil && failure.Value == "ignore"
		if len(pre) > 0 {
			before = append(before, group(v.lines(t, pre, scope), ignore))
		}
		if len(post) > 0 {
			after = append([]string{group(v.lines(t, post, scope), ignore)}, after...)
		}
	}
	if list := get(n, "prerequisites"); list != nil {
		for _, name := range list.Content {
			p := v.named[name.Value]
			if p == nil {
				v.wrong(name, "there is no prerequisite with the name %q; add it to prerequisites", name.Value)
				continue
			}
			if plugin := get(p, "plugin"); plugin != nil {
				add(strings.TrimPrefix(strings.TrimPrefix(plugin.Value, pluginPrefix), "."), p, get(p, "failurePolicy"))
			}
		}
	}
	for _, p := range v.plugins {
		roles := get(p, "taskroles")
		if roles != nil && !slices.ContainsFunc(roles.Content, func(r *yaml.Node) bool { return r.Value == t.name }) {
			continue
		}
		add(v.text(get(p, "plugin"), "plugin"), get(p, "parameters"), get(p, "failurePolicy"))
	}
	return before, after
}

// commandsOf returns the commands of the cmd plugin, in either form.
func (v *version2) commandsOf(settings *yaml.Node) (pre, post []*yaml.Node) {
	items := func(n *yaml.Node) []*yaml.Node {
		if n == nil {
			return nil
		}
		return n.Content
	}
	pre, post = items(get(settings, "preCommands")), items(get(settings, "postCommands"))
	for _, c := range items(get(settings, "callbacks")) {
		switch event := get(c, "event"); {
		case event == nil:
			v.wrong(c, "a callback has no event; add taskStarts or taskSucceeds")
		case event.Value == "taskStarts":
			pre = append(pre, items(get(c, "commands"))...)
		case event.Value == "taskSucceeds":
			post = append(post, items(get(c, "commands"))...)
		default:
			v.wrong(event, "unknown event %q; use taskStarts or taskSucceeds", event.Value)
		}
	}
	return pre, post
}

// group returns plugin commands as a part of the script. They run in a subshell, so their variables
// do not leak. A failure ends the script, or only the group.
func group(lines []string, ignore bool) string {
	inner := "set +o nounset +o pipefail\n" + strings.Join(lines, "\n")
	if ignore {
		return "( set +o errexit\n" + inner + "\ntrue )"
	}
	return "( " + inner + "\n)"
}

// tensorboard returns commands that start TensorBoard in the first task of the first role, as
// OpenPAI did.
func (v *version2) tensorboard(settings *yaml.Node, scope map[string]*yaml.Node) []string {
	port := v.number(get(settings, "port"), "tensorboard: port", 0, 0)
	names, dirs := v.pairs(get(settings, "logdir"), "tensorboard: logdir")
	if port == 0 || len(names) == 0 {
		v.warn("the runtime plugin tensorboard has no port or no logdir, so TensorBoard does not start; add both")
		return nil
	}
	spec := make([]string, len(names))
	for i := range names {
		spec[i] = names[i] + ":" + v.expand(dirs[i], dirs[i].Value, scope, 0)
	}
	flag := "--logdir_spec=" + strings.Join(spec, ",")
	if len(names) == 1 {
		flag = "--logdir=" + strings.TrimPrefix(spec[0], names[0]+":")
	}
	return []string{fmt.Sprintf(`if [ "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX" = 0 ]; then
  command -v tensorboard >/dev/null || pip install tensorboard
  tensorboard %s --port=%d --bind_all >&2 &
fi`, quote(flag), port)}
}

// storages reads the directories that OpenPAI mounts, from extras or from the older plugin.
func (v *version2) storages(extras *yaml.Node, j *job) {
	list := get(extras, "storages")
	if list == nil {
		for _, p := range v.plugins {
			if name := get(p, "plugin"); name != nil && name.Value == "teamwise_storage" {
				if list = get(p, "parameters", "storageConfigNames"); list == nil {
					v.warn("the runtime plugin teamwise_storage names no storage, so none is mounted; OpenPAI mounted the user's storages: list them in storageConfigNames")
				}
			}
		}
	}
	if list == nil {
		return
	}
	for _, n := range list.Content {
		s := storage{at: v.offset(n), name: n.Value}
		if n.Kind == yaml.MappingNode {
			name := get(n, "name")
			if name == nil {
				continue // as in OpenPAI
			}
			s.name = name.Value
			s.path = v.text(get(n, "mountPath"), "mountPath")
			s.readOnly = get(n, "readOnly") != nil && get(n, "readOnly").Value == "true"
		}
		if s.path == "" {
			s.path = "/mnt/" + s.name
		}
		if slices.ContainsFunc(j.storages, func(o storage) bool { return o.name == s.name || o.path == s.path }) {
			v.wrong(n, "duplicate storage %s or path %s; write it once", s.name, s.path)
		}
		j.storages = append(j.storages, s)
	}
}

// unsupported warns about requested features that are not converted.
func (v *version2) unsupported(extras *yaml.Node) {
	for _, p := range v.plugins {
		name := get(p, "plugin")
		if name == nil {
			continue
		}
		switch name.Value {
		case "cmd", "tensorboard", "teamwise_storage":
		case "ssh":
			v.warn("the runtime plugin ssh is not supported, so tasks cannot log in to each other; use kubectl exec, or an image whose command starts sshd at $PAI_CONTAINER_SSH_PORT with keys from a Secret")
		default:
			v.warn("the runtime plugin %s is not supported; add its work to the commands of the task role", name.Value)
		}
	}
	states, wanted := v.pairs(get(extras, "jobStatusChangeNotification"), "jobStatusChangeNotification")
	for i := len(states) - 1; i >= 0; i-- {
		if wanted[i].Value != "true" {
			states = slices.Delete(states, i, i+1)
		}
	}
	if len(states) > 0 {
		v.warn("jobStatusChangeNotification has no equivalent, so no notification is sent when the job is %s; use kubectl wait, or let your monitoring watch the job", strings.Join(states, " or "))
	}
	if n := get(extras, "hivedScheduler", "jobPriorityClass"); n != nil {
		v.warn("hivedScheduler's jobPriorityClass %s has no equivalent; set the job's label kueue.x-k8s.io/priority-class to a WorkloadPriorityClass of your cluster", n.Value)
	}
}

// mount validates the sources of storages.
func (c *conversion) mount() {
	for _, s := range c.storages {
		url := c.opts.Storages[s.name]
		switch {
		case !strings.HasPrefix(s.path, "/"):
			c.fault(s.at, "the storage %s is mounted at %q; write an absolute path", s.name, s.path)
		case url != "" && c.opts.Inject.CheckURL != nil:
			if err := c.opts.Inject.CheckURL(url); err != nil {
				c.faultInFile("storage %s: %v", s.name, err)
			}
		case url == "" && c.local:
			c.warn("the storage %s is not mounted here; stage it with --storage %s=URL", s.name, s.name)
		case url == "":
			c.warn("the storage %s becomes the PersistentVolumeClaim of this name, as in OpenPAI; create it in the job's namespace, or stage a URL instead with --storage %s=URL", s.name, s.name)
		}
		if url != "" && !s.readOnly {
			c.warn("the storage %s is a copy at %s: files that the tasks write there are not saved", s.name, s.path)
		}
	}
	for name := range c.opts.Storages {
		if !slices.ContainsFunc(c.storages, func(s storage) bool { return s.name == name }) {
			c.warn("the job has no storage %s, so its URL has no effect", name)
		}
	}
	if c.gang && c.queue() == nil && !c.local && c.tasks() > 1 {
		c.warn("OpenPAI starts all tasks at once (gangAllocation), and Kubernetes starts each as soon as it fits; let Kueue admit the whole job with --queue, or write gangAllocation: false if the order does not matter")
	}
}

func (c *conversion) tasks() (n int) {
	for _, t := range c.roles {
		n += t.tasks
	}
	return n
}

// claim returns the volume of a storage and its mount.
func (s storage) claim() (mount, volume any) {
	name := "storage-" + dnsName(s.name, labelMax-len("storage-"))
	at := entries{{key: "name", value: name}, {key: "mountPath", value: s.path}}
	claim := entries{{key: "claimName", value: s.name}}
	if s.readOnly {
		at, claim = append(at, entry{key: "readOnly", value: true}), append(claim, entry{key: "readOnly", value: true})
	}
	return flow(at), entries{{key: "name", value: name}, {"persistentVolumeClaim", flow(claim), "the storage " + strconv.Quote(s.name)}}
}
