// Package stager is the daemon: it feeds a trainer through windows and prefetched
// directories and saves its outputs, as one StagePlan says.
//
// A [Config] becomes a [Daemon] by [New], which contacts nothing; [Daemon.Run] is
// its whole life:
//
//  1. It listens on its socket, so that whoever asks is told what it waits for.
//  2. Inputs are listed and begin to arrive: a prefetch is ready when all of it is
//     there, a window when its first shards are. Outputs are watched from here on.
//  3. When every input is ready the [Child] starts, if there is one: the workstation's
//     way. Without one stager is a sidecar, and /readyz says when the trainer may
//     start.
//  4. The end comes when the child ends, when the context ends (SIGTERM) or when
//     somebody calls drain: fetching stops, then outputs are saved, the newest
//     complete checkpoint first.
//  5. The windows' directories are given free and the socket goes.
//
// It may be killed at any of these points; started again it goes on where it was,
// since what counts is on the disk and in the store.
//
// The parts have packages of their own: stager/plan says what is to be done,
// stager/download brings objects in, window decides which and for how long,
// stager/checkpoint takes results away, stager/api tells of it all.
package stager
