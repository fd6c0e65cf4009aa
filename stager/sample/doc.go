// Package sample mixes the samples of a window's shards into files of their own.
//
// [New] makes a [Sampler] of a [Source], which is a window, here or behind the API of a
// running stager; [Sampler.Run] keeps a directory, best on a RAM disk, filled with files of
// so many samples each. They are handed out by a window again, [Sampler.Window]: its bound,
// leases, verbs and promises are those of package window, for which the sampler is no
// more than a plan that grows (window.Config.More) and a Fetcher.
//
// The way of a sample:
//
//  1. A shard is leased and indexed: where in it each sample lies. Every checksum in it is
//     verified, so that of a damaged archive nothing is handed on.
//  2. Config.Open shards are open at a time. A file is planned by drawing one of them, and
//     of it one of the samples that are left, in the shard's own shuffled order, until there
//     are Config.Samples. A shard that is exhausted gives way to the next.
//  3. The window reserves the file's room, which is known to the byte, before it is written.
//  4. The samples are copied as they are. Those of a tar archive are all files of one
//     name but for the extension; two samples of one name never stand side by side, as
//     readers would take them for one.
//  5. When a file and all before it are acknowledged, the shards are acknowledged of which
//     every sample lies in these.
//
// What is planned depends on the seed, the numbers of Config and the shards in their
// order alone: planned again, the files are the same byte for byte. So what is kept of
// the state, in sample.json, is only where the oldest file that is wanted began. A
// sampler that was killed renews its leases, plans again from there, and finds its files
// in the directory; without that state, or without the leases, it begins anew with the
// shards that are not acknowledged, so that samples come again and none is lost.
package sample
