// Package pack shows many small files as few large ones: a directory of a store, seen
// as tar archives, which WebDataset calls shards.
//
// [Open] lists the directory and decides which file goes into which shard. What it returns
// is a store like any other, only that it cannot be written to: it lists shards, and
// reading a range of one reads the files that lie in this range, several at once. So
// whatever copies stores copies packed ones, with its checks, its parts in any order and
// its resuming. Nothing is ever packed on a disk.
//
// The layout:
//
//   - Files that differ in what comes behind the first dot of their names are one sample,
//     as in WebDataset: a/1.jpg and a/1.cls. A sample lies in one shard, in one piece.
//   - Samples stand in the order of the listing, or in one drawn from a seed.
//   - A shard takes samples as long as it is no larger than was asked for; a sample that
//     is larger by itself has a shard to itself.
//   - The same listing makes the same bytes, always: members have no times and no owners.
//     The version of a shard tells of the key, size and version of every file in it, so a
//     change of one file changes its shard alone, if it keeps its size.
//
// A [Publisher] publishes the index when all workers have finished, see package layout.
//
// Each file is read at the version that was listed, and its checksum compared where the
// store tells one.
package pack
