// Package fileshare holds what file servers share: directory trees that a client reads and writes by
// calls on files.
//
//   - A [Session] is a connection with a watchdog, for libraries without deadlines, and a [Pool]
//     opens sessions and replaces those that have ended.
//   - [List] and [Sweep] walk a [Tree], which a protocol describes by a few calls.
package fileshare
