// Package bench measures stager beside the fastest other client of the same server,
// on this machine, and makes a table of it.
//
// A [Row] is data: a piece of work, stager's command and the peer's, what is done
// before each run and how its result is checked. A [Suite] starts a server and brings
// its rows. [Run] makes the runs in turn, A B A B, throws the first pair away, takes
// medians, and fails when a result is not equal, byte for byte, to what was sent. It makes
// more pairs where they differ, until [Ratios] says that the ratio is sure.
//
// A suite that moves several gigabytes first takes that much memory and sees to it that the
// machine keeps it, also where a virtual machine lends what is free to its host.
//
// Of a trainer the same [Row] has more to say: it leaves a [Reading], how many images it
// took in what time and how long it waited, and finds itself that they were all there.
//
// Server and client share the machine, so the ratio of wall times understates; the
// client's CPU time for each gigabyte is what carries over to other machines. All
// files lie in one directory that should be in memory, to take the disk out of it, but for rows
// that are of a disk; Lab.To is for those who want it in all. On a disk that is mounted with
// discard those rows bring a file system of their own.
//
// A [Report] is all of it, in a file of which each line is an [Entry]. [Compare] compares two.
//
// A [Goal] is what a row is to reach. The table says of a row what it missed, and beside it what the row's floor
// reaches: a program that moves the same bytes and does nothing else (package floor).
package bench
