// Package download brings objects from a store into files.
//
// [Object] is the core: it cuts what is missing of one object into ranges, reads
// them at once, sums the bytes while they pass, and checks them against what the
// store says of the whole. It stands between a [backends.Store], which makes one
// range arrive, and a [disk.Incoming], which remembers what has arrived and gives
// the file its name.
//
// Two use it:
//
//   - [Prefetch] brings all of a dataset, once, under the names it has in the store.
//     Run again it costs a listing; run after a kill it goes on.
//   - [Window] is the window.Fetcher of a rolling window: one item when it is asked, which
//     may be a directory of many small objects.
//
// The life of a prefetch:
//
//  1. The source is listed into a spool on disk, each key checked, each local file
//     compared with the record of what earlier runs wrote.
//  2. Meanwhile workers take objects off the spool: a small one whole, a large one in
//     ranges, so that all of them work until the last byte. Each file is verified. Of
//     the first some thousands it waits under .stager for its name; there the workers
//     stop.
//  3. The list is at its end. When a file stands in the way, when it is more than is
//     allowed, or when the disk has not the room, what waits is removed, and nothing
//     has been touched. Otherwise the files that wait are renamed into place and noted
//     in the record, and the workers go on, and do that with each file at once.
//  4. Where it is asked for, one sync of the file system makes all of it durable, and
//     the record says so. Until then the record counts in this boot of the machine
//     only.
//
// With Config.Unpack an archive becomes a directory while it arrives: [stream] has its bytes
// in order, package unpack what is in them, and unpack.go tells the rest.
//
// Memory does not grow with the bytes, and by some 32 bytes for each file in the
// record.
package download
