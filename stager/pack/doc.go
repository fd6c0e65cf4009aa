// Package pack presents a directory of many small files as a few large tar archives, which
// WebDataset calls shards.
//
// [Open] lists the directory and assigns files to shards. It returns a read-only store: listing it
// returns shards, and reading a range of a shard reads the files in this range, several at once. So
// any code that copies stores can copy packed ones, with its checksums, parallel parts and
// resuming. Nothing is ever packed on a disk.
//
// The layout:
//
//   - Files whose names differ only after the first dot are one sample, as in WebDataset:
//     a/1.jpg and a/1.cls. A sample lies in one shard, contiguously.
//   - Samples are in the order of the listing, or in an order shuffled by a seed.
//   - A shard takes samples up to the requested size. A sample that is larger than this size
//     has a shard to itself.
//   - The same listing always makes the same bytes: members have no times and no owners. The
//     version of a shard depends on the key, size and version of every file in it, so a change
//     of one file changes its shard alone if the file keeps its size.
//
// A [Publisher] publishes the index when all workers have finished, see package layout.
//
// Each file is read at the version that was listed, and its checksum is compared if the store
// reports one.
package pack
