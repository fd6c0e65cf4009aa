// Package soak runs stager for hours under faults, and finds what grows.
//
// [Run] starts an S3 server behind a [servers.Proxy], and four daemons: two feed readers from windows
// over many small shards, for epochs without end, and two save the checkpoints of trainers, of which
// retention keeps a few. Faults follow one another: the store is slow, resets connections, throttles, cuts
// answers, falls silent, is killed; credentials are rotated; disks fill up; readers, restores and daemons
// are killed with SIGKILL. One daemon of each kind is never killed, so that what it leaks adds up.
//
// Meanwhile the promises are checked from outside, with what readers wrote down, what the volumes have in
// use and what restores return. And what a daemon takes is sampled: memory, descriptors, goroutines, disk,
// journal, latency. A [Trend] says whether such a series is flat.
//
// One machine does in minutes what a job does in days: it saves every second or two, not every half hour.
// So the trend is extrapolated over work, not over time. What grows with time alone, as a timer that leaks
// once an hour, is only found by a run as long as that takes.
package soak
