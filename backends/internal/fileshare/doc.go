// Package fileshare holds what file servers share: directory trees that a client reads and writes by
// calls on files. A protocol such as sftp builds on it in three steps:
//
//  1. A [Session] is a connection with a watchdog, for libraries without deadlines. A [Pool] opens
//     sessions and replaces those that have ended. A library that has both already needs neither.
//  2. The protocol implements [Protocol], [File] and [TempFile]: the calls on one tree, and the kinds of its
//     errors. [CheckKey], [Reserved], [Unreachable], [Prune] and [Flush] serve as parts of it.
//  3. Its Backend embeds the [Share] that [New] returns, and adds Capabilities.
//
// The Share does the rest. Listings are in byte order and follow links, but not in a circle. Streams
// read ahead and compare the version of the file. Writers fill a temporary file, make it durable and
// publish it; an [Upload] that loses its session writes lost parts again. A failed writer leaves
// nothing behind, and Sweep finds what a killed one has left.
//
// The test of this package is a complete protocol over a directory of this machine.
//
// A protocol with streams of its own, such as nfs, leaves [Config] without Open, and its Backend has
// an OpenRange. With writers of its own too it uses [List] and [Sweep] alone, which need a [Tree].
package fileshare
