// Package plan parses a StagePlan, the file that lists the data a job needs and the results it
// leaves, and computes what it means.
//
// Start with [Parse]: it refuses unknown fields and reports all errors at once. Then, in this
// order:
//
//   - [ShardSpec.Resolve] finds out which of how many nodes this is.
//   - [StagePlan.Expand] replaces placeholders such as {job}.
//   - The listing of a source gives its objects and their safe names, and [Groups] combine many
//     small objects into items.
//   - [Order] returns the order of the items, [Shard.Owns] selects those of this node, and
//     [Digest] identifies the whole, so that a restart can tell whether the plan is the same.
//
// The package is pure: it touches neither the file system, the network nor the process. The
// environment is passed as a function, stores as an argument.
//
// The same file serves a pod and a workstation. Fields that describe a pod (volumes, nodeSelector,
// secret) have no effect without a pod, except for the size of a volume: windows must fit into it
// everywhere.
package plan
