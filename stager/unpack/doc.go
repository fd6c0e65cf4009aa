// Package unpack opens archives while they arrive: tar, plain or compressed by gzip or
// zstd, and zip.
//
// [Archive] reads one from its first byte to its last and gives what is in it to an
// [Into], entry by entry, in the order in which the bytes come. It knows neither stores
// nor disks. Nothing of an archive is kept, but the directory of a zip: that has a limit,
// and tar needs no memory for its entries.
//
// Archives come from whoever can write to a store, so nothing in them is believed:
//
//   - A name that its Into will not have refuses the archive. So do
//     links, devices, sparse and encrypted files, two entries with one name, and an entry
//     that is both a file and a directory. Which it was stands in a [Refused].
//   - An Into is told the size of a file before its bytes, and never gets more.
//   - What the archive itself can tell of damage is looked for to the end: the checksums
//     of zip, gzip and zstd and the headers of tar; a tar without its end was cut off.
//     That is a [Damaged].
//
// Of an entry its name, its bytes and whether it can be executed count; owners, times
// and further attributes do not.
package unpack
