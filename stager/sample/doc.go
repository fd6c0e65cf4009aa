// Package sample mixes the samples of a window's shards into new files.
//
// [New] makes a [Sampler] from a [Source], which is a window in this process or behind the API of a
// running stager. [Sampler.Run] keeps a directory, best on a RAM disk, filled with files of a fixed
// number of samples each. Another window, [Sampler.Window], hands these files out. Its bound,
// leases, file protocol and guarantees are those of package window; for that package the sampler is
// only a plan that grows (window.Config.More) and a Fetcher.
//
// The path of a sample:
//
//  1. The sampler leases a shard and indexes it: where each sample lies. It verifies every
//     checksum in the shard, so that no sample of a damaged archive is handed out.
//  2. Config.Open shards are open at a time. To plan a file, the sampler picks one of them at
//     random, and the next remaining sample in that shard's own shuffled order, until there are
//     Config.Samples. The next shard replaces one that is exhausted.
//  3. The window reserves the room for the file, known to the byte, before it is written.
//  4. The samples are copied unchanged. A sample of a tar archive is all files with one name
//     except for the extension. Two samples of one name are never adjacent, as readers would
//     take them for one.
//  5. When a file and all files before it are acknowledged, the sampler acknowledges the shards
//     whose samples all lie in these files.
//
// The files depend only on the seed, the numbers in Config, and the shards in their order: planned
// again, they are the same byte for byte. So the saved state, sample.json, holds only where the
// oldest file that is still needed began. A sampler that was killed renews its leases, plans again
// from there, and finds its files in the directory. Without that state, or without the leases, it
// starts over with the shards that are not acknowledged: samples are repeated, and none is lost.
package sample
