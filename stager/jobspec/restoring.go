package jobspec

import (
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// restoreSecrets is the variable with the credentials directory of "stager restore".
const restoreSecrets = "STAGER_RESTORE_SECRETS"

// restoreVariables are the variables that identify the node and the job to a restore.
var restoreVariables = []string{"STAGER_INDEX", "STAGER_COUNT", "STAGER_ATTEMPT", jobUIDVariable, podUIDVariable}

// restoring lets the nodes of a job agree on the checkpoint that they restore. If all nodes save an
// output, the job's containers and the init containers that run "stager restore" get the variables
// that identify node and job. These init containers also get the output's Secret, because the
// agreement is written to the store, unless they have credentials of their own.
func (p *pod) restoring() {
	i := slices.IndexFunc(p.req.plan.Spec.Outputs, func(out plan.Output) bool { return out.Nodes == plan.NodesAll })
	if i < 0 {
		return
	}
	all := slices.DeleteFunc(slices.Clone(p.variables()), func(v variable) bool {
		return !slices.Contains(restoreVariables, v.name) && !slices.ContainsFunc(p.job.helpers, func(h variable) bool { return h.name == v.name })
	})
	for i := range p.targets {
		if p.shape.inside && i == 0 {
			continue // has all variables already
		}
		for _, v := range all {
			p.variable(i, v)
		}
	}
	secret := p.req.plan.Spec.Outputs[i].Credentials.Secret
	for _, c := range p.spec("initContainers").All() {
		if !restores(c) {
			continue
		}
		where := at("spec", "initContainers", "name="+c.Get("name").Text())
		set := func(v variable) {
			if c.Get("env").Item("name", v.name) == nil {
				p.put(where.in("env", "name="+v.name), v.entry())
			}
		}
		for _, v := range all {
			set(v)
		}
		if secret == "" || p.shape.inside || hasCredentials(c) {
			continue
		}
		directory := plan.SecretsDir + "/" + secret
		set(variable{restoreSecrets, literalSource(directory)})
		m := append(mountAt(p.volumeName(ofSecret, secret), directory), yamledit.Entry{Key: "readOnly", Value: true})
		p.put(where.in("volumeMounts", "mountPath="+directory), m)
	}
}

// restores reports whether a container runs "stager restore", directly or in a script.
func restores(c *yamledit.Node) bool {
	var words []string
	for _, list := range []string{"command", "args"} {
		for _, word := range c.Get(list).All() {
			words = append(words, strings.Fields(word.Text())...)
		}
	}
	if len(c.Get("command").All()) == 0 && len(words) > 0 && words[0] == "restore" {
		return path.Base(strings.SplitN(c.Get("image").Text(), ":", 2)[0]) == "stager" // the entrypoint of stager's image
	}
	for i, word := range words[:max(0, len(words)-1)] {
		if path.Base(word) == "stager" && words[i+1] == "restore" {
			return true
		}
	}
	return false
}

// hasCredentials reports whether a container may have credentials of its own.
func hasCredentials(c *yamledit.Node) bool {
	if len(c.Get("envFrom").All()) > 0 {
		return true
	}
	return slices.ContainsFunc(c.Get("env").All(), func(v *yamledit.Node) bool {
		name := v.Get("name").Text()
		return strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "OSS_") || strings.HasPrefix(name, "ALIBABA_")
	})
}
