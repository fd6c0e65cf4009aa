// Package group implements the protocol by which the nodes of a job save and restore checkpoints
// together. A [Machine] saves and a [Restorer] restores. Both are state machines: they take
// events (store responses, timers, complete checkpoints on this node) and return actions
// (requests, timers, reports). They have no clock, no goroutine and no I/O, so a test can run
// every order of events.
//
// The caller executes the actions and passes each result back as an event; see [Action]:
//
//	m, err := group.New(group.Config{Job: job, Index: 0, Count: 2, Boot: boot})
//	if err != nil {
//		return err
//	}
//	actions := m.Step(group.Event{What: group.Start})
//
// # Terms
//
// A job is an identity that the scheduler assigns. A member is one run of a pod at one index of a
// job. Its boot id is random and stored on the pod's volume, so a restarted container is the same
// member and a new pod is not. A view is the set of members of all indices 0…n-1 that agree on
// job and n. Its name is a digest of their boot ids. A save is one writing of a step by the
// trainer. Its number is the number of its announcement in the view.
//
// # Records
//
//	nodes/members/<index>.json              who runs at an index; replaced by compare-and-swap
//	nodes/view.json                         the current view; replaced by compare-and-swap
//	nodes/views/<view>/<save>.json          the announcement of a save; created once
//	nodes/restores/<job>/<number>.json      which checkpoint all nodes of a job restore; created once
//	nodes/followers/<job>/<index>.json      what a node has restored; replaced by compare-and-swap
//	step-S/parts/<view>/<save>/<index>.json what one node saved; created once
//	step-S/COMMIT.json                      the step exists; created or replaced by compare-and-swap
//
// No name begins with a dot, because drivers for shared file systems hide such names. Unknown
// fields are ignored. A record lists under "requires" the features that a reader must know. A
// reader that lacks one refuses the record. A record that cannot be read is never removed or
// replaced.
//
// # Steps
//
//  1. Register. A member reads the record of its index and creates or replaces it. It
//     replaces a record of the same job; the member of that record is fenced. It replaces a
//     record of another job if that member has left, or if the record did not change for
//     the lease time on the observer's own clock. Otherwise the new member is refused. A
//     member proves that it is alive by a counter in its record.
//  2. Form a view. The member of index 0 reads all member records. When all n agree on
//     job and n, it writes the view. The others read that one record. This does not reduce
//     availability: without index 0 no step can be saved in any case.
//  3. Restore. Each node restores at its own time, often before it is a member. The first
//     node to decide creates an agreement, and all others follow it. The next agreement is
//     made when the job is known to have run since; see [Restorer].
//  4. Save. When a checkpoint is complete on a node, the node with the job-wide sign
//     announces it, or the lowest index that has its own sign. Announcements are numbered
//     and created if absent, so all nodes see one order. Nothing is announced while a save
//     is open, so nodes with slow uploads skip the same steps. A checkpoint is skipped when
//     one that the trainer wrote later was announced; see Order below.
//  5. Part. After reading an announcement, a node uploads its snapshot for that save, or
//     scans its files again, and creates its part. A node without files creates an empty
//     part. A node that cannot take part creates a failed part, which ends the save for
//     all. So does a part that cannot be read, because parts are never replaced.
//  6. Commit. Index 0 lists the parts. When all n exist, it checks that the data exist,
//     writes COMMIT.json by compare-and-swap, and reads parts and data again before it
//     reports success. The other nodes read COMMIT.json and check their own data. Each of
//     them takes over the commit when COMMIT.json does not appear.
//  7. A view ends when a member is replaced. Its checkpoints are never saved in another
//     view. Saves for which all parts exist are still committed. Others are abandoned and
//     reported. So are saves without the part of a member that has left the job in order.
//
// # Order
//
// Trainers go back to earlier steps, so numbers of steps do not order checkpoints. Two things do.
// The round of a checkpoint is the number of the job's last restore agreement when its files
// appeared; a later round is newer. A node knows when it restored itself, however late the store
// tells it of the agreement. In a round, the order is that in which a node saw checkpoints
// complete. Trainers of a job wait for each other, so all nodes see the same order. An
// announcement lists what its node saw before, for nodes that are behind. A node ends the save of
// a checkpoint that is older than an announced one. The numbers of saves in a view are therefore
// in the order of writing, and of two COMMITs of a view the one with the higher number is newer.
//
// # Writings
//
// A trainer may write a step again. Each node counts the writings of a step that it has seen
// complete by a sign ([Writings]), and the count is in the announcement. A node that holds a
// later or an earlier writing ends the save by a failed part. The step is announced again when
// the nodes hold the same writing. Files of two writings therefore never form one COMMIT if the
// nodes' counts distinguish them. The counts do not distinguish them if
//
//   - a node missed a writing: it was replaced before the node saw it complete, or while
//     stager was not running there;
//   - a node has no sign of its own for its files, and only an announcement for all nodes
//     exists: what the node finds after reading the announcement may have been written
//     after the sign. Files written after the node's scan began end the save;
//   - a trainer restarts in the same pods without a restore by stager, so that no new round
//     begins. Counts start again in each round.
//
// A step that only some nodes write again is not saved.
//
// The order of store operations alone makes a COMMIT correct. Timers only determine how soon
// something happens, and whether a second job is refused.
package group
