// Package plan reads a StagePlan, the file that says which data a job needs and
// which results it leaves, and works out what it means.
//
// Start with [Parse]: it refuses what it does not know and tells all faults at
// once. Then, in this order:
//
//   - [ShardSpec.Resolve] finds out which node of how many this is;
//   - [StagePlan.Expand] puts values for placeholders such as {job};
//   - the listing of a source gives its objects and their safe names, and [Groups] make
//     items of many small ones;
//   - [Order] says in which order they come, [Shard.Owns] which are this node's,
//     and [Digest] names the whole, so that a restart knows whether it goes on with
//     the same plan.
//
// The package is pure: it touches neither the file system, the network nor the
// process. The environment comes as a function, stores as an argument.
//
// The same file serves a pod and a workstation. What says how a pod is built
// (volumes, nodeSelector, secret) changes nothing where there is no pod, but for a
// volume's size, which windows must fit everywhere.
package plan
