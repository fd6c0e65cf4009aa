// Package layout lets workers that share one piece of work agree on what it is.
//
// Workers that copy or pack one source, each its own part, divide the work by position:
// the i-th object, the i-th archive. That is right only if every worker has the same list,
// seed, options and count of workers. A source that changes between the start of two
// workers moves every position behind the change, and each worker would succeed although
// some objects were handled by none of them.
//
// A [Layout] describes the work. The first worker records it at the destination before it
// sends anything ([Join]), by a conditional create. Every other worker compares its own
// layout with the record, and refuses to start if they differ. At its end a worker writes
// an empty mark that names the record, and learns whether it was the last one.
//
// The rules:
//
//   - A record is replaced only by a conditional replace, and only when every worker that
//     it counts has left its mark, or when it counts one worker. So a source that changes
//     between two complete runs is no obstacle, and one that changes within a run is.
//   - A worker that finds its own mark under a complete record begins a new run of the same
//     layout. Without that, the first worker of a second run could finish before the
//     source changes, and the others would take its record for that of the first run.
//   - A record that cannot be read, or that is of a later format, is never replaced.
//   - [Reset] removes a record whose workers cannot finish any more.
package layout
