package plan

import (
	"errors"
	"strings"
	"testing"
)

func TestPositionsHaveOneOwner(t *testing.T) {
	for _, count := range []int{1, 2, 3, 7, 8, 11, 13, 100, Stripes} {
		owned := make([]int, count)
		const positions = 3*Stripes + 17
		for p := range positions {
			owner := -1
			for i := range count {
				if !(Shard{i, count}).Owns(p) {
					continue
				}
				if owner >= 0 {
					t.Fatalf("count %d: position %d belongs to %d and %d", count, p, owner, i)
				}
				owner = i
			}
			if owner < 0 {
				t.Fatalf("count %d: position %d belongs to nobody", count, p)
			}
			owned[owner]++
		}
		for i, n := range owned {
			if want := positions / count; n < want-4 || n > want+4 {
				t.Errorf("count %d: node %d has %d positions, want about %d", count, i, n, want)
			}
		}
	}
	if !(Shard{}).Owns(5) {
		t.Error("the zero Shard is not the whole")
	}
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"2/8": {2, 8}, "0/1": {0, 1}, "839/840": {839, 840}} {
		if got, err := ParseShard(text); err != nil || got != want || got.String() != text {
			t.Errorf("ParseShard(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "2", "2/", "/8", "8/8", "-1/8", "0/0", "0/841", "1/2/3", "a/b", "0/-1"} {
		if got, err := ParseShard(bad); err == nil {
			t.Errorf("ParseShard(%q) = %v, want an error", bad, got)
		}
	}
}

func TestResolve(t *testing.T) {
	auto := ShardSpec{By: ShardAuto}
	none := ShardSpec{By: ShardNone}
	for _, tt := range []struct {
		name       string
		spec       ShardSpec
		env        string
		node, part Shard
		err        string // a word of the error
	}{
		{name: "alone", spec: auto, node: Shard{0, 1}, part: Shard{0, 1}},
		{name: "said", spec: auto, env: "STAGER_INDEX=2 STAGER_COUNT=8 RANK=x NODE_RANK=1", node: Shard{2, 8}, part: Shard{2, 8}},
		{name: "indexed job", spec: auto, env: "JOB_COMPLETION_INDEX=3 STAGER_COUNT=4", node: Shard{3, 4}, part: Shard{3, 4}},
		{name: "indexed job without its completions", spec: auto, env: "JOB_COMPLETION_INDEX=3", err: "set STAGER_COUNT"},
		{name: "a count without an index", spec: auto, env: "STAGER_COUNT=4", err: "set STAGER_INDEX"},
		{name: "a count of one", spec: auto, env: "STAGER_COUNT=1", node: Shard{0, 1}, part: Shard{0, 1}},
		{name: "jobs of several pods", spec: auto, env: "STAGER_INDEX=2*8+3 STAGER_COUNT=32 JOB_COMPLETION_INDEX=3", node: Shard{19, 32}, part: Shard{19, 32}},
		{name: "a label that is not there", spec: auto, env: "STAGER_INDEX=+1 STAGER_COUNT=4", err: `STAGER_INDEX is not a number: "+1"`},
		{name: "an index alone", spec: auto, env: "STAGER_INDEX=1", err: "set STAGER_COUNT"},
		{name: "torchrun", spec: auto, env: "PET_NODE_RANK=1 PET_NNODES=2", node: Shard{1, 2}, part: Shard{1, 2}},
		{name: "elastic torchrun", spec: auto, env: "PET_NODE_RANK=1 PET_NNODES=1:4", err: "PET_NNODES"},
		{name: "two that agree", spec: auto, env: "JOB_COMPLETION_INDEX=1 PET_NODE_RANK=1 PET_NNODES=2", node: Shard{1, 2}, part: Shard{1, 2}},
		{name: "indices that disagree", spec: auto, env: "NODE_RANK=0 NNODES=2 SLURM_NODEID=1 SLURM_NNODES=2", err: "NODE_RANK is 0 but SLURM_NODEID is 1"},
		{name: "counts that disagree", spec: auto, env: "NODE_RANK=0 NNODES=2 STAGER_COUNT=4", err: "NNODES is 2 but STAGER_COUNT is 4"},
		{name: "processes are no nodes", spec: auto, env: "NODE_RANK=1 NNODES=2 RANK=1 WORLD_SIZE=16", node: Shard{1, 2}, part: Shard{1, 2}},
		{name: "rank", spec: auto, env: "RANK=1 WORLD_SIZE=2", node: Shard{1, 2}, part: Shard{1, 2}},
		{name: "ranks that share a node", spec: auto, env: "RANK=11 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8", node: Shard{1, 2}, part: Shard{1, 2}},
		{name: "ranks that share no node evenly", spec: auto, env: "RANK=11 WORLD_SIZE=16 LOCAL_WORLD_SIZE=5", err: "not a multiple"},
		{name: "open mpi", spec: auto, env: "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4", node: Shard{1, 2}, part: Shard{1, 2}},
		{name: "volcano", spec: auto, env: "VC_TASK_INDEX=2 STAGER_COUNT=3", node: Shard{2, 3}, part: Shard{2, 3}},
		{
			name: "openpai", spec: auto,
			env:  "PAI_CURRENT_TASK_ROLE_NAME=worker PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX=2 PAI_TASK_ROLE_TASK_COUNT_worker=5",
			node: Shard{2, 5}, part: Shard{2, 5},
		},
		{name: "slurm", spec: auto, env: "SLURM_NODEID=7 SLURM_NNODES=16", node: Shard{7, 16}, part: Shard{7, 16}},
		{name: "aws batch", spec: auto, env: "AWS_BATCH_JOB_NODE_INDEX=1 AWS_BATCH_JOB_NUM_NODES=2", node: Shard{1, 2}, part: Shard{1, 2}},
		{name: "beyond", spec: auto, env: "SLURM_NODEID=16 SLURM_NNODES=16", err: "SLURM_NODEID and SLURM_NNODES"},
		{name: "no number", spec: auto, env: "RANK=first WORLD_SIZE=2", err: `RANK is not a number: "first"`},

		{name: "none", spec: none, env: "NODE_RANK=1 NNODES=2", node: Shard{1, 2}, part: Shard{0, 1}},
		{name: "none, and nobody knows", spec: none, env: "JOB_COMPLETION_INDEX=1", part: Shard{0, 1}},

		{name: "explicit", spec: ShardSpec{ShardExplicit, "1", "3"}, env: "NODE_RANK=0 NNODES=2", node: Shard{1, 3}, part: Shard{1, 3}},
		{name: "explicit by variables", spec: ShardSpec{ShardExplicit, "$MINE", "$ALL"}, env: "MINE=4 ALL=5", node: Shard{4, 5}, part: Shard{4, 5}},
		{name: "explicit by one that is not set", spec: ShardSpec{ShardExplicit, "$MINE", "5"}, err: "MINE"},
		{name: "explicit and beyond", spec: ShardSpec{ShardExplicit, "$MINE", "5"}, env: "MINE=5", err: "indices start at 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node, part, err := tt.spec.Resolve(environment(tt.env))
			if tt.err != "" {
				var wrong *EnvError
				if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, %v, %v; want an EnvError with %q", node, part, err, tt.err)
				}
				return
			}
			if err != nil || node != tt.node || part != tt.part {
				t.Errorf("got %v, %v, %v; want %v, %v", node, part, err, tt.node, tt.part)
			}
		})
	}
}

// environment converts "NAME=value NAME=value" to a function.
func environment(text string) func(string) string {
	env := make(map[string]string)
	for _, pair := range strings.Fields(text) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return func(name string) string { return env[name] }
}
