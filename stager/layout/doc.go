// Package layout makes workers that share one job agree on what the job is.
//
// Workers that copy or pack one source, each its own part, divide the work by position: the i-th
// object, the i-th archive. That is right only if every worker has the same listing, seed, options
// and number of workers. If the source changes between the start of two workers, every position
// after the change moves. Each worker would succeed, although none of them handled some objects.
//
// A [Layout] describes the work. Call [Join] before sending anything: the first worker records its
// layout at the destination by a conditional create. Every other worker compares its own layout
// with the record and refuses to start if they differ. When a worker finishes, it writes an empty
// mark that names the record, and learns whether it was the last one.
//
// The rules:
//
//   - A record is replaced only by a conditional replace, and only when every worker that it
//     counts has left its mark, or when it counts one worker. So a source may change between two
//     complete runs, but not within a run.
//   - A worker that finds its own mark under a complete record begins a new run of the same
//     layout. Without that rule, the first worker of a second run could finish before the
//     source changes, and the others would take its record for that of the first run.
//   - A record that cannot be read, or that has a later format, is never replaced.
//   - [Reset] removes a record whose workers cannot finish any more.
package layout
