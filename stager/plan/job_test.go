package plan

import "testing"

func TestJobIdentity(t *testing.T) {
	for _, tt := range []struct {
		env      map[string]string
		id, from string
	}{
		{nil, "", ""},
		{map[string]string{"STAGER_JOB_UID": ""}, "", ""},
		{map[string]string{"STAGER_JOB_UID": "u", "SLURM_JOB_ID": "7"}, "u", "STAGER_JOB_UID"},
		{map[string]string{"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "a100", "SLURM_NODEID": "1", "SLURM_RESTART_COUNT": "2"}, "slurm-a100-7", "SLURM_JOB_ID"},
		{map[string]string{"SLURM_JOB_ID": "7"}, "slurm--7", "SLURM_JOB_ID"},
		{map[string]string{"AWS_BATCH_JOB_ID": "1b2c#3", "AWS_BATCH_JOB_NODE_INDEX": "3"}, "1b2c", "AWS_BATCH_JOB_ID"},
		{map[string]string{"FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "0_u"}, "0_u", "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"},
	} {
		id, from := JobIdentity(func(name string) string { return tt.env[name] })
		if id != tt.id || from != tt.from {
			t.Errorf("of %v: got %q from %q, want %q from %q", tt.env, id, from, tt.id, tt.from)
		}
	}
}
