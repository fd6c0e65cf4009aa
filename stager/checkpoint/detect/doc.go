// Package detect decides whether a checkpoint is complete. It reads nothing: the caller
// describes a directory in a [View], and [Judge] returns a [Judgement] with its reason.
//
// Evidence, strongest first:
//
//   - said: the trainer committed it, a marker was written last, or it was renamed into
//     place;
//   - sign: a file that the framework writes last;
//   - shape: the files of the last complete checkpoints of this output, numbers of step
//     and rank replaced, all whole;
//   - structure: a checkpoint of one file whose format records where the file ends;
//   - quiet: nothing changed for a while, a shorter one when a later checkpoint has begun.
//     Only such a checkpoint is provisional.
//
// Against all of these but a commit stand denials: files under temporary names or open
// for writing, files that break off, missing files of a numbered set, a sign that is
// missing or older than its data, and marks that the framework removes at the end. A
// denied checkpoint is not complete, however long it lies there.
package detect
