// Package checkpoint takes a trainer's results away while it runs, and brings the
// newest good checkpoint back.
//
// [New] makes an [Uploader] of one output directory; [Uploader.Run] watches it,
// [Uploader.Commit] is how a trainer says that a checkpoint is complete, and
// [Uploader.Drain] is the end. [Restore] is the way back. [Push] and
// [PushCheckpoint] do the same once, without a watch.
//
// The way of a checkpoint:
//
//  1. Complete? A directory of the output whose name ends in a number (checkpoint-500),
//     or a file such as epoch=3-step=500.ckpt, is judged by package evidence: somebody
//     said so, by Commit, the marker .ready or a rename; a framework wrote its sign; it
//     has the shape of those before it; or nothing in it changed for Settle, which is
//     provisional. In each case nobody may have a file of it open for writing, which
//     the kernel reports of files that stager may ask about. Files of TensorFlow that
//     share the beginning of their name are one.
//  2. Snapshot: its files are hard-linked aside below .stager in the output directory,
//     so that the trainer may prune. Where links are refused it is read in place.
//  3. Shipped: the files go to a place of the store that only this snapshot uses,
//     and are summed on the way. One that changed meanwhile ends the attempt; the
//     directory must be complete anew.
//     What the committed step before has too is referred to, and not sent (reuse.go).
//  4. COMMIT.json, which lists every file with size and digest, is created last, and
//     only where there is none or a provisional one of this uploader; of several nodes
//     as package group decides (member.go). Of many who upload the same step one wins.
//  5. Older steps that Keep does not name go, COMMIT.json first, and so does what nobody
//     refers to (retain.go).
//
// In the store:
//
//	step-00012000/COMMIT.json         makes the step exist; names the data and lists it
//	step-00012000/data/7c1f…/model.pt one upload's files, under a name of its own
//	step-00012000/parts/node-000.json what a single node sent; see package group for several
//	LATEST                            a hint for people; nothing reads it
//	files/logs/train.log              what is no checkpoint, mirrored as it settles
//
// Since each upload writes below a name of its own, no file of one attempt ever
// stands among those of another: a crash at any point leaves data that nothing
// refers to, which a later pass sweeps.
//
// What in the output directory is no checkpoint is mirrored when it has settled: plain
// files, directories without a number, also files that claim one step together. With
// [ModeNone] that is all that happens, and files stands for the destination itself.
// Symbolic links to files are followed within a checkpoint, or within the output, and
// not beyond it. What of a mirror cannot be saved is named: see plainwalk.go.
//
// A restarted Uploader goes on with the snapshots and files that an earlier one
// left. What it remembers are hints: without them it asks the store and reads the
// files again.
package checkpoint
