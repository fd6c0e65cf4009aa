// Package detect decides whether a checkpoint is complete. The caller describes the files of a
// directory in a [View]; [Judge] returns a [Judgement] with its reason. The package does no I/O.
//
//	j := detect.Judge(view, &shapes, 10*time.Second)
//	if j.Complete() {
//		shapes.Learn(view, j.Final())
//	}
//
// The kinds of evidence, strongest first:
//
//   - said: the trainer committed it, a marker was written last, or it was renamed into
//     place;
//   - sign: a file that the framework writes last;
//   - shape: the files of the last complete checkpoints of this output, with step and rank
//     numbers replaced, all whole;
//   - structure: a single file whose format records where the file ends;
//   - quiet: nothing changed for a while. The period is shorter once a later checkpoint has
//     begun. Only such a checkpoint is provisional.
//
// Denials override all evidence except a commit: files under temporary names or open for writing,
// truncated files, missing files of a numbered set, a sign that is missing or older than its
// data, and marks that the framework removes at the end. A denied checkpoint never becomes
// complete by time alone.
package detect
