package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// EnvError reports that the environment lacks what the plan needs, or contradicts itself: the
// configuration is wrong, not the plan.
type EnvError struct{ Err error }

func (e *EnvError) Error() string { return e.Err.Error() }

// Unwrap returns the cause: [Faults] if it concerns fields of the plan.
func (e *EnvError) Unwrap() error { return e.Err }

// indexSource is a pair of variables by which a launcher gives a process its index and count.
type indexSource struct {
	index, count string
	perNode      string // variable with the processes per node, if the pair counts processes
}

// launchers are ordered by priority. Those of one rank mean the same and must agree. Those of
// different ranks may differ: a pod of a PyTorchJob has NODE_RANK of its nodes and RANK of its
// processes.
var launchers = [][]indexSource{
	{
		{index: "STAGER_INDEX", count: "STAGER_COUNT"},
	}, {
		{index: "JOB_COMPLETION_INDEX"},
		{index: "PET_NODE_RANK", count: "PET_NNODES"},
		{index: "NODE_RANK", count: "NNODES"},
		{index: "VC_TASK_INDEX"},
		{index: "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", count: "PAI_TASK_ROLE_TASK_COUNT_$PAI_CURRENT_TASK_ROLE_NAME"},
		{index: "SLURM_NODEID", count: "SLURM_NNODES"},
		{index: "AWS_BATCH_JOB_NODE_INDEX", count: "AWS_BATCH_JOB_NUM_NODES"},
	}, {
		{index: "RANK", count: "WORLD_SIZE", perNode: "LOCAL_WORLD_SIZE"},
		{index: "OMPI_COMM_WORLD_RANK", count: "OMPI_COMM_WORLD_SIZE", perNode: "OMPI_COMM_WORLD_LOCAL_SIZE"},
	},
}

// Resolve returns which node of how many this is, and which partition of the inputs it gets. They
// are equal except for by: none, where every node gets the whole, and node is the zero Shard if the
// environment does not set it.
//
// With by: auto the first launcher that sets variables decides; without any there is a single node.
// STAGER_COUNT replaces a count that the launcher does not set, such as the completions of an
// Indexed Job. An index without a count, a count without an index, and contradictions are an
// [EnvError]: a wrong guess would silently omit data.
//
// STAGER_INDEX may be a sum of products, such as 2*8+3, since Kubernetes can concatenate the labels
// of a pod but cannot calculate.
func (s ShardSpec) Resolve(getenv func(string) string) (node, part Shard, err error) {
	switch s.By {
	case ShardExplicit:
		node, err = s.explicit(getenv)
		part = node
	case ShardNone:
		// An unknown node matters only if a placeholder needs it.
		if node, err = fromLaunchers(getenv); err != nil {
			node, err = Shard{}, nil
		}
		part = Shard{Index: 0, Count: 1}
	default:
		node, err = fromLaunchers(getenv)
		part = node
	}
	if err != nil {
		return Shard{}, Shard{}, &EnvError{err}
	}
	return node, part, nil
}

func (s ShardSpec) explicit(getenv func(string) string) (Shard, error) {
	number := func(text string) (int, error) {
		name, variable := strings.CutPrefix(text, "$")
		if variable {
			text = getenv(name)
		}
		n, err := strconv.Atoi(text)
		if err != nil && variable {
			return 0, fmt.Errorf("the plan's shard uses %s, which is not a number: %q", name, text)
		}
		return n, err
	}
	index, err := number(s.Index)
	if err != nil {
		return Shard{}, err
	}
	count, err := number(s.Count)
	if err != nil {
		return Shard{}, err
	}
	node := Shard{index, count}
	return node, node.check()
}

// said is a number and the variable that it came from.
type said struct {
	name  string
	value int
}

func fromLaunchers(getenv func(string) string) (Shard, error) {
	for _, rank := range launchers {
		var index, count said
		for _, source := range rank {
			if getenv(source.index) == "" {
				continue
			}
			i, n, err := source.read(getenv)
			if err != nil {
				return Shard{}, err
			}
			if err := index.join(i); err != nil {
				return Shard{}, err
			}
			if err := count.join(n); err != nil {
				return Shard{}, err
			}
		}
		if index.name == "" {
			continue
		}
		if total := getenv("STAGER_COUNT"); total != "" {
			n, err := number("STAGER_COUNT", total)
			if err != nil {
				return Shard{}, err
			}
			if err := count.join(n); err != nil {
				return Shard{}, err
			}
		}
		if count.name == "" {
			return Shard{}, fmt.Errorf("%s sets node index %d, but the number of nodes is unknown: set STAGER_COUNT, or shard.by: none in the plan", index.name, index.value)
		}
		node := Shard{index.value, count.value}
		if err := node.check(); err != nil {
			return Shard{}, fmt.Errorf("%s and %s: %w", index.name, count.name, err)
		}
		return node, nil
	}
	if total := getenv("STAGER_COUNT"); total != "" && total != "1" {
		return Shard{}, fmt.Errorf("STAGER_COUNT sets %s nodes, but the index of this node is unknown: set STAGER_INDEX, or shard.by: none in the plan", total)
	}
	return Shard{Index: 0, Count: 1}, nil
}

// read returns the launcher's values. The name of count is empty if it is not set.
func (s indexSource) read(getenv func(string) string) (index, count said, err error) {
	if index, err = number(s.index, getenv(s.index)); err != nil {
		return said{}, said{}, err
	}
	name := s.count
	if prefix, variable, ok := strings.Cut(name, "$"); ok {
		name = prefix + getenv(variable)
	}
	if name == "" || getenv(name) == "" {
		return index, said{}, nil
	}
	if count, err = number(name, getenv(name)); err != nil {
		return said{}, said{}, err
	}
	if shared := getenv(s.perNode); s.perNode != "" && shared != "" {
		per, err := number(s.perNode, shared)
		if err != nil {
			return said{}, said{}, err
		}
		if per.value < 1 || count.value%per.value != 0 {
			return said{}, said{}, fmt.Errorf("%s is %d, which is not a multiple of %s, %d: set STAGER_INDEX and STAGER_COUNT",
				count.name, count.value, per.name, per.value)
		}
		index.value /= per.value
		count.value /= per.value
	}
	return index, count, nil
}

func number(name, text string) (said, error) {
	n, err := reckon(text)
	if err != nil {
		return said{}, fmt.Errorf("%s is not a number: %q; set STAGER_INDEX and STAGER_COUNT", name, text)
	}
	return said{name, n}, nil
}

// reckon evaluates a sum of products, such as 3 or 2*8+3.
func reckon(text string) (sum int, err error) {
	for term := range strings.SplitSeq(text, "+") {
		product := 1
		for factor := range strings.SplitSeq(term, "*") {
			n, err := strconv.Atoi(factor)
			if err != nil {
				return 0, err
			}
			product *= n
		}
		sum += product
	}
	return sum, nil
}

// join adopts the other value, if it is set. Two different values are an error.
func (s *said) join(other said) error {
	if s.name == "" || other.name == "" {
		if s.name == "" {
			*s = other
		}
		return nil
	}
	if s.value != other.value {
		return fmt.Errorf("%s is %d but %s is %d: set STAGER_INDEX and STAGER_COUNT, or shard in the plan",
			s.name, s.value, other.name, other.value)
	}
	return nil
}
