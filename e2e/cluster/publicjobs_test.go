package cluster

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublicJobs converts public jobs of OpenPAI's repository with the command, and asks the
// API server, strictly, for all that comes of them. Which of them are refused is in the
// table of package pai.
func TestPublicJobs(t *testing.T) {
	c := asked(t, apiServer)
	c.define(t)
	const corpus = "../../stager/jobspec/pai/testdata/openpai"
	rows := make(map[string]string) // by file
	for line := range strings.Lines(read(t, corpus+"/TABLE")) {
		file, row, _ := strings.Cut(line, ": ")
		rows[file] = row
	}
	var manifests []string
	refused := 0
	for _, file := range find(t, 140, corpus+"/v1/*", corpus+"/v2/*") {
		name := path.Base(path.Dir(file)) + "/" + path.Base(file)
		if strings.HasPrefix(rows[name], "refused: ") {
			refused++
			continue
		}
		manifests = append(manifests, c.stager(t, "", "pai", "convert", "-q", "--user", "alice", "--default-fs", "hdfs://namenode:8020", filepath.FromSlash(file)))
	}
	// One request for many manifests, because each takes the time of starting kubectl.
	var inner []string
	sets := 0
	objects := c.creates(t, strings.Join(manifests, "\n---\n"))
	for _, o := range objects {
		if o["kind"] == "JobSet" {
			sets++
		}
		inner = append(inner, templatesIn(o, "")...)
	}
	c.creates(t, strings.Join(inner, "\n---\n"))
	t.Logf("%d files: %d converted to %d objects, of which %d are JobSets, with %d templates; %d refused", len(manifests)+refused, len(manifests), len(objects), sets, len(inner), refused)
	if len(objects) < len(manifests) || len(inner) < len(manifests) || sets == 0 {
		t.Errorf("the API server has %d objects with %d templates, want one for each of %d jobs at least", len(objects), len(inner), len(manifests))
	}
}
