package pai

import (
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

func (c *conversion) dataPath() string   { return c.root + "/data" }
func (c *conversion) outputPath() string { return c.root + "/output" }
func (c *conversion) codePath() string   { return c.root + "/code/" + c.codeBase() }

// plan returns the StagePlan of a role's tasks, or "" if nothing is staged. As in OpenPAI every
// task reads all of the data. Every task writes to a directory of its own.
func (c *conversion) plan(t *role) string {
	var volumes, inputs, outputs []any
	if c.codeDir != "" {
		inputs = append(inputs, c.input("code", c.codeDir, c.codePath(), yamledit.Entry{Key: "maxBytes", Value: codeMax.String()}))
	}
	if c.dataDir != "" && c.staged() {
		var more []yamledit.Entry
		if c.opts.DataSize > 0 {
			more = append(more, yamledit.Entry{Key: "volume", Value: "data"})
			volumes = append(volumes, yamledit.Map{{Key: "name", Value: "data"}, {Key: "size", Value: c.opts.DataSize.String()}})
		} else if !c.local {
			c.warn("the size of dataDir is unknown, so it may fill the node's disk; set the size with --data-size")
		}
		inputs = append(inputs, c.input("data", c.dataDir, c.dataPath(), more...))
	}
	for _, s := range c.storages {
		if url := c.opts.Storages[s.name]; url != "" {
			at := s.path
			if c.local {
				at = c.root + at
			}
			name := "storage-" + dnsName(s.name, labelMax-len("storage-"))
			var more []yamledit.Entry
			if c.opts.DataSize > 0 {
				more = append(more, yamledit.Entry{Key: "volume", Value: name})
				volumes = append(volumes, yamledit.Map{{Key: "name", Value: name}, {Key: "size", Value: c.opts.DataSize.String()}})
			}
			inputs = append(inputs, c.input(name, url, at, more...))
		}
	}
	if c.outputDir != "" && c.staged() {
		destination := directory(c.outputDir, "")
		if len(c.roles) > 1 || t.tasks > 1 {
			destination = directory(c.outputDir, t.name+"/{index}/")
			c.warn("each task saves $PAI_OUTPUT_DIR to its own directory below outputDir, named by its role and index")
		}
		if c.retries != 0 {
			c.warn("a retried job starts with an empty $PAI_OUTPUT_DIR; a command that resumes must first restore from $PAI_OUTPUT_URI")
		}
		output := yamledit.Map{
			{Key: "name", Value: "output"},
			{Key: "path", Value: c.outputPath()},
			{Key: "destination", Value: destination},
			{Key: "commit", Value: plan.CommitNone},
			{Key: "conflict", Value: plan.ConflictOverwrite},
		}
		outputs = append(outputs, secret(output, c.opts.WriteSecret, c.opts.WriteSecretKeys))
	}
	if len(inputs)+len(outputs) == 0 {
		return ""
	}
	spec := yamledit.Map{{Key: "shard", Value: yamledit.Map{{Key: "by", Value: plan.ShardNone}}}}
	for _, part := range []yamledit.Entry{{Key: "volumes", Value: volumes}, {Key: "inputs", Value: inputs}, {Key: "outputs", Value: outputs}} {
		if list, _ := part.Value.([]any); len(list) > 0 {
			spec = append(spec, part)
		}
	}
	return yamledit.Marshal(yamledit.Map{
		{Key: "apiVersion", Value: plan.APIVersion},
		{Key: "kind", Value: plan.Kind},
		{Key: "metadata", Value: yamledit.Map{{Key: "name", Value: c.names.job}}},
		{Key: "spec", Value: spec},
	})
}

func (c *conversion) input(name, source, at string, more ...yamledit.Entry) yamledit.Map {
	m := yamledit.Map{{Key: "name", Value: name}, {Key: "source", Value: directory(source, "")}, {Key: "path", Value: at}}
	return secret(append(m, more...), c.opts.ReadSecret, c.opts.ReadSecretKeys)
}

func secret(m yamledit.Map, name string, keys []string) yamledit.Map {
	var credentials yamledit.Map
	if name != "" {
		credentials = append(credentials, yamledit.Entry{Key: "secret", Value: name})
	}
	if len(keys) > 0 { // without a name the plan's check refuses them
		var all []any
		for _, key := range keys {
			all = append(all, key)
		}
		credentials = append(credentials, yamledit.Entry{Key: "keys", Value: all})
	}
	if credentials == nil {
		return m
	}
	return append(m, yamledit.Entry{Key: "credentials", Value: credentials})
}

// directory returns a URL of the directory below, with a trailing slash, so that the URL does not
// match other names with the same prefix. Parameters of the URL are preserved.
func directory(url, below string) string {
	where, parameters, has := strings.Cut(url, "?")
	where = strings.TrimRight(where, "/") + "/" + below
	if has {
		where += "?" + parameters
	}
	return where
}
