// Package stager is the daemon that runs a StagePlan: it feeds a trainer from windows and
// prefetched directories, and saves the trainer's outputs.
//
// Fill in a [Config], pass it to [New], and call [Daemon.Run]. New contacts nothing. Run returns
// when the plan is finished:
//
//  1. Run listens on its socket first, so that clients can ask what it waits for.
//  2. It lists the inputs and starts to fetch. A prefetch is ready when all of it is on
//     disk, a window when its first shards are. Outputs are watched from here on.
//  3. When every input is ready, it starts the [Child], if there is one (the workstation
//     mode). Without a child stager is a sidecar, and /readyz reports when the trainer
//     may start.
//  4. The drain begins when the child exits, when the context ends (SIGTERM), or on a
//     drain request. Fetching stops, then outputs are saved, the newest complete
//     checkpoint first.
//  5. It releases the windows' directories and removes the socket.
//
// The process may be killed at any of these points. When it starts again it continues where it was,
// because all state that counts is on disk and in the store.
//
// The parts have packages of their own: stager/plan parses the plan, stager/download fetches
// objects, window chooses which objects to retain and for how long, stager/checkpoint saves
// results, and stager/api reports on all of them.
package stager
