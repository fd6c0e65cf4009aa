// Package trial puts a window to the proof: readers take shards through it, are
// killed, the daemon is killed, and every shard is counted.
//
// [Run] starts "stager run" with a plan, a number of readers as processes of their
// own, and a [room.Watcher] that looks at the disk from outside. The readers write down
// what they took and acknowledged, each line one write, so that a SIGKILL loses none; the
// [Report] is made from these records and nothing that stager says of itself.
//
// The demo and the crash test are two sizes of it.
//
// Checkpoints have trials of their own: stager is killed at random moments of its
// uploads, and one of three nodes in the middle of a step; what restore brings is
// compared byte for byte.
//
// A sampler has one, too: with readers, the sampler and stager killed again and again, the files
// that were acknowledged are those of a calm run, byte for byte, and each once.
//
// The nodes of a job save together: pods are killed, replaced, fewer, swapped and late, and
// what is restored is compared with what one save of all nodes wrote.
//
// Several stagers meet at one destination: writers of one step, a retention and restores,
// some of them killed. And a hostile [Neighbour] shares the volumes of a stager, and tries
// to get at a secret, to have files of its own removed, and to have wrong bytes passed on.
//
// What stager writes to a disk is recorded by a file system of package lossyfs: it starts on
// each state that a loss of power may leave, and with each call failing in turn.
//
// Its tests do the same to servers of every protocol: they are killed, or fall silent,
// in the middle of a prefetch, a push and a window, and come back.
package trial
