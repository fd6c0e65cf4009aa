// Package group is the protocol by which the nodes of a job save and restore
// checkpoints together. It decides and does nothing else: a [Machine], which saves, and a
// [Restorer] take events (answers of the store, timers, complete checkpoints on this node)
// and return actions (requests, timers, reports). They have no clock, no goroutine and no
// I/O, so a test can run every order of events. The caller executes the actions; see
// [Action].
//
// # Terms
//
// A job is an identity that the scheduler gives. A member is one run of a pod at one
// index of a job; its boot id is random and kept on the pod's volume, so a restarted
// container is the same member and a new pod is not. A view is the set of members of
// all indices 0…n-1 that agree on job and n. Its name is a digest of their boot ids. A
// save is one writing of a step by the trainer; its number is the number of its
// announcement in the view.
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
// No name begins with a dot, because drivers for shared file systems hide such names.
// Unknown fields are ignored. A record names under "requires" the features that a
// reader must know; a reader that lacks one refuses the record. A record that cannot
// be read is never removed or replaced.
//
// # Steps
//
//  1. Register. A member reads the record of its index and creates or replaces it. A
//     record of the same job is replaced, and the member it named is fenced. A record
//     of another job is replaced when it says that the member has left, or when it did
//     not change for the lease time on the observer's own clock. Otherwise the member
//     is refused. A member proves that it is alive by a counter in its record.
//  2. Form a view. The member of index 0 reads all member records. When all n agree on
//     job and n, it writes the view. The others read that one record. This costs no
//     availability: no step can be saved without index 0 in any case.
//  3. Restore. Each node restores at its own time, often before it is a member. The first
//     to decide creates an agreement, and all others follow it. The next agreement is made
//     when the job is known to have run since; see [Restorer].
//  4. Save. A checkpoint that is complete on a node is announced by the node with the
//     job-wide sign, or by the lowest index that has its own. Announcements are
//     numbered and created if absent, so all nodes see one order. Nothing is
//     announced while a save is open, so nodes with slow uploads skip the same steps.
//  5. Part. After it read an announcement, a node uploads what it held for that save,
//     or scans its files again, and creates its part. A node without files creates an
//     empty part. A node that cannot take part creates a failed part, which ends the
//     save for all; so does a part that cannot be read, since parts are never replaced.
//  6. Commit. Index 0 lists the parts. When all n are there, it looks up the data that
//     they name, writes COMMIT.json by compare-and-swap, and reads parts and data
//     again before it reports success. The other nodes read COMMIT.json, and look up
//     their own data. Each takes the work over when COMMIT.json does not appear.
//  7. A view ends when a member is replaced. Its checkpoints are never saved in
//     another view. Saves for which all parts exist are still committed; others are
//     abandoned and reported.
//
// # Writings
//
// A trainer may write a step again. Each node counts the writings of a step that it has
// seen complete by a sign ([Writings]), and the count is in the announcement. A node that
// holds a later writing, or still holds an earlier one, ends the save by a failed part; the
// step is announced again when the nodes hold the same writing. So files of two writings
// make no COMMIT where the nodes' counts tell them apart. They cannot where
//
//   - a node missed a writing: it was replaced before the node saw it complete, or while
//     stager was not running there;
//   - a node has no sign of its own for its files, and an announcement for all nodes is
//     the only one: what it finds after it read the announcement may have been written
//     after the sign. Files that were written after the node began to look end the save;
//   - a trainer starts again in the same pods without restoring by stager, so that no new
//     round begins.
//
// A step that some nodes write again and others do not is not saved.
//
// The order of store operations alone makes a COMMIT correct. Timers decide only how
// soon something happens, and whether a second job is refused.
package group
