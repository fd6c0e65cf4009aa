package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// smallRole lets tasks of OpenPAI, which ask for whole processors and a shell that the image
// does not have, run on the node.
var smallRole = strings.NewReplacer(
	"- bash\n", "- sh\n",
	"image: trainer\n", "image: "+trainerImage+"\n                  imagePullPolicy: Never\n",
)

// aProcessor is what each task asks for, and each container of stager beside it: the requests
// of a pod that is guaranteed its resources equal its limits.
var aProcessor = regexp.MustCompile(`cpu: "?1"?([,}\n])`)

// plays does for a manifest what the controller of JobSets does, by their documentation:
// each replicated Job becomes a Job NAME-ROLE-0, whose pods are in the subdomain of a headless
// Service of the JobSet's name. It returns the Jobs' names, in order.
func (c *cluster) plays(t *testing.T, manifest string) (jobs []string) {
	t.Helper()
	for _, o := range c.creates(t, aProcessor.ReplaceAllString(smallRole.Replace(manifest), "cpu: 10m$1")) {
		if o["kind"] != "JobSet" {
			t.Fatalf("there is a %s, want a JobSet alone", o["kind"])
		}
		set, _ := o.at("metadata", "name").(string)
		c.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {jobset.sigs.k8s.io/jobset-name: %[1]s}}}`, set))
		t.Cleanup(func() { _, _ = c.kubectl(context.Background(), "", "delete", "service", set, "--wait=false") }) // all ends anyway
		roles, _ := o.at("spec", "replicatedJobs").([]any)
		for _, r := range roles {
			role := object(r.(map[string]any))
			labels := map[string]any{"jobset.sigs.k8s.io/jobset-name": set, "jobset.sigs.k8s.io/replicatedjob-name": role["name"], "jobset.sigs.k8s.io/job-index": "0"}
			spec, _ := role.at("template", "spec").(map[string]any)
			pod, _ := object(spec).at("template", "spec").(map[string]any)
			template, _ := spec["template"].(map[string]any)
			metadata, _ := template["metadata"].(map[string]any)
			metadata["labels"] = labels
			pod["subdomain"] = set
			name := fmt.Sprintf("%s-%s-0", set, role["name"])
			text, err := json.Marshal(map[string]any{
				"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": name, "labels": labels}, "spec": spec,
			})
			if err != nil {
				t.Fatal(err)
			}
			c.apply(t, string(text))
			jobs = append(jobs, name)
		}
	}
	return jobs
}
