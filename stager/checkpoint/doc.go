// Package checkpoint uploads the checkpoints that a training process writes, and restores
// the newest valid one.
//
// An [Uploader] watches one output directory while the trainer runs. It detects complete
// checkpoints, uploads them in the background and commits them:
//
//	u, err := checkpoint.New(cfg)    // Config names the directory and the store
//	go u.Run(ctx)                    // watches and uploads until ctx is done
//	u.Commit(ctx, request)           // optional: the trainer declares a checkpoint complete
//	u.Drain(ctx, exit)               // saves what is left when the trainer has exited
//
// [Restore] downloads the newest valid checkpoint. [Push] and [PushCheckpoint] upload a
// directory or a checkpoint once, without watching.
//
// # How a checkpoint is saved
//
//  1. Detection. A candidate is a directory of the output whose name ends in a number
//     (checkpoint-500), or a file such as epoch=3-step=500.ckpt. TensorFlow files with the
//     same prefix are one candidate. Package detect decides whether it is complete: by an
//     explicit commit (Commit, the marker .ready, or a rename); by a file that a framework
//     writes last; by the same shape as earlier checkpoints; or by a quiet period
//     (Config.QuietPeriod), which is provisional. No file of it may be open for writing. The
//     kernel reports this only for files that stager is allowed to query.
//  2. Snapshot. Its files are hard-linked below .stager in the output directory, so that the
//     trainer may delete its own. Where links are refused, the files are read in place.
//  3. Upload. The files go to a directory of the store that only this snapshot uses, and are
//     hashed on the way. A file that changes meanwhile ends the attempt, and the directory
//     must be complete again. Files that the previous committed step also has are referenced
//     and not sent again (reuse.go).
//  4. Commit. COMMIT.json lists every file with its size and digest and is created last. An
//     existing one is replaced only if it is provisional and of the same uploader, or with
//     [ConflictOverwrite]. If several uploaders save the same step, one wins. Package group
//     coordinates several nodes (member.go).
//  5. Retention. Steps that Keep does not select are removed, COMMIT.json first. Data that
//     nothing references is removed too (retain.go). This runs beside the upload of the next
//     checkpoint (cleanup.go).
//
// # Layout of the store
//
//	step-00012000/COMMIT.json         makes the step exist; lists its files and where they are
//	step-00012000/data/7c1f…/model.pt the files of one upload, under its unique ID
//	step-00012000/parts/node-000.json what a single node sent; see package group for several
//	LATEST                            a hint for people; restore does not need it
//	files/logs/train.log              other files, mirrored after their quiet period
//
// Each upload writes below its own ID, so the files of two attempts never mix. A crash at
// any point leaves only unreferenced data, which a later pass removes.
//
// # Other files
//
// Files of the output directory that belong to no checkpoint are mirrored after a quiet
// period: plain files, directories without a number, and files that claim the same step.
// With [ModeNone] everything is mirrored, directly into the destination instead of files/.
// Symbolic links to files are followed within a checkpoint or within the output, and never
// out of it. The mirror reports files that it cannot save (plainwalk.go).
//
// # Restarts
//
// A restarted Uploader resumes from the snapshots and records that an earlier process left.
// The records are hints: without them, the Uploader queries the store and reads the files
// again.
package checkpoint
