package plan

import "strings"

// jobVariables contain an identity of the job that is unique among jobs, the same on all nodes, and
// kept by a restart of the job.
var jobVariables = []string{
	"STAGER_JOB_UID", // set by inject, or by hand
	"SLURM_JOB_ID",   // a requeued job keeps it
	"AWS_BATCH_JOB_ID",
	"FC_FRAMEWORK_ATTEMPT_INSTANCE_UID", // OpenPAI
}

// JobIdentity returns the identity of the job that this process belongs to, and the variable that
// it comes from. Both are empty if the launcher does not provide one: then another job with the
// same plan cannot be told apart from this one.
//
// Slurm numbers the jobs of each cluster from 1, so the identity includes the cluster's name.
func JobIdentity(getenv func(string) string) (id, from string) {
	for _, name := range jobVariables {
		id = getenv(name)
		if id == "" {
			continue
		}
		switch name {
		case "SLURM_JOB_ID":
			id = "slurm-" + getenv("SLURM_CLUSTER_NAME") + "-" + id
		case "AWS_BATCH_JOB_ID":
			id, _, _ = strings.Cut(id, "#") // in a job with several nodes the value is ID#NODE
		}
		return id, name
	}
	return "", ""
}
