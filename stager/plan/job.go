package plan

import "strings"

// jobVariables hold an identity of the job that its launcher gives to no other job, all
// nodes of the job read alike, and a restart of the job keeps.
var jobVariables = []string{
	"STAGER_JOB_UID", // by inject, or by hand
	"SLURM_JOB_ID",   // a job that is requeued keeps it
	"AWS_BATCH_JOB_ID",
	"FC_FRAMEWORK_ATTEMPT_INSTANCE_UID", // OpenPAI
}

// JobIdentity returns the identity of the job that this process is a part of, and the
// variable that it comes from. Both are empty where the launcher does not give one: then
// another job with the same plan looks like this one.
//
// Slurm numbers the jobs of each cluster from 1, so the cluster's name is a part of it.
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
			id, _, _ = strings.Cut(id, "#") // a node of a job of several has ID#NODE
		}
		return id, name
	}
	return "", ""
}
