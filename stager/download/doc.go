// Package download fetches objects from a store into files.
//
// [Object] is the core. It divides the missing part of one object into ranges, reads them
// concurrently, computes checksums on the fly, and compares them with the checksum of the whole
// that the store reports. It connects a [backends.Store], which delivers one range, to a
// [disk.Incoming], which remembers what has arrived and gives the file its name.
//
// Two types use it:
//
//   - [Prefetch] fetches a whole dataset once, under the names it has in the store. Running it
//     again costs one listing; running it after a kill continues the work.
//   - [Window] is the window.Fetcher of a rolling window. It fetches one item on request; an
//     item may be a directory of many small objects.
//
// The steps of a prefetch:
//
//  1. It lists the source into a spool on disk, checks each key, and compares each local file
//     with the record of what earlier runs wrote.
//  2. Meanwhile workers fetch objects from the spool: small ones whole, large ones in ranges,
//     so that all workers stay busy until the last byte. Each file is verified. The first few
//     thousand files stay under .stager without their final names; then the workers stop.
//  3. When the listing ends, prefetch checks for conflicting files, for the limit on size, and
//     for room on the disk. If a check fails it removes the waiting files, and nothing else
//     has been touched. Otherwise it renames the waiting files into place and notes them in the
//     record. The workers continue and publish each further file at once.
//  4. If requested, one sync of the file system makes all files durable, and the record says
//     so. Until then the record is valid only in this boot of the machine.
//
// With Config.Unpack an archive becomes a directory while it arrives: [stream] provides its bytes
// in order, package unpack reads the entries, and unpack.go connects them.
//
// Memory does not grow with the number of bytes. It grows by about 32 bytes for each file in the
// record.
package download
