package pai

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// The fields that protocol version 2 defines. Prerequisites and the parameters of plugins are
// defined by their types and plugins, and extras by the cluster.
var (
	jobFields        = []string{"protocolVersion", "name", "type", "version", "contributor", "description", "prerequisites", "parameters", "secrets", "jobRetryCount", "taskRoles", "deployments", "defaults", "extras"}
	roleFields       = []string{"instances", "completion", "taskRetryCount", "dockerImage", "data", "output", "script", "prerequisites", "extraContainerOptions", "resourcePerInstance", "commands"}
	completionFields = []string{"minFailedInstances", "minSucceededInstances"}
	optionFields     = []string{"shmMB", "infiniband"}
	resourceFields   = []string{"cpu", "memoryMB", "gpu", "ports"}
	defaultFields    = []string{"virtualCluster", "deployment"}
	deploymentFields = []string{"name", "taskRoles"}
	aroundFields     = []string{"preCommands", "postCommands"}
	pluginFields     = []string{"plugin", "parameters", "failurePolicy", "taskroles"}
)

// unknown warns about fields of the job that protocol version 2 does not define.
func (v *version2) unknown(root *yaml.Node) {
	v.ignored(root, "the job", jobFields)
	v.ignored(get(root, "defaults"), "defaults", defaultFields)
	v.each(get(root, "taskRoles"), func(name string, role *yaml.Node) {
		what := "task role " + name
		v.ignored(role, what, roleFields)
		v.ignored(get(role, "completion"), what+": completion", completionFields)
		v.ignored(get(role, "extraContainerOptions"), what+": extraContainerOptions", optionFields)
		v.ignored(get(role, "resourcePerInstance"), what+": resourcePerInstance", resourceFields)
	})
	if all := get(root, "deployments"); all != nil && all.Kind == yaml.SequenceNode {
		for _, d := range all.Content {
			v.ignored(d, "deployments", deploymentFields)
			v.each(get(d, "taskRoles"), func(name string, role *yaml.Node) {
				v.ignored(role, "deployments: task role "+name, aroundFields)
			})
		}
	}
	for _, p := range v.plugins {
		v.ignored(p, pluginPrefix, pluginFields)
	}
}

// each calls do for the fields of a mapping.
func (v *version2) each(n *yaml.Node, do func(name string, value *yaml.Node)) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		do(n.Content[i].Value, n.Content[i+1])
	}
}

// ignored warns about the fields of a mapping that are not known.
func (v *version2) ignored(n *yaml.Node, what string, known []string) {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; key.Tag != "!!merge" && !slices.Contains(known, key.Value) {
			v.warn("line %d: %s: unknown field %s is ignored", key.Line, what, key.Value)
		}
	}
}
