// Package unpack extracts archives while they arrive: tar, plain or compressed by gzip or zstd, and
// zip.
//
// [Archive] reads an archive from its first byte to its last and passes the entries to an [Into],
// in the order of the bytes. It knows neither stores nor disks. It retains nothing of an archive
// but the directory of a zip, which has a limit; tar needs no memory for its entries.
//
// Archives are untrusted: anyone who can write to the store can supply one. The rules:
//
//   - An archive is refused if its Into rejects a name. It is also refused for links, devices,
//     sparse or encrypted files, two entries with one name, or an entry that is both a file and
//     a directory. The error is a [Refused].
//   - An Into gets the size of a file before its bytes, and never more bytes than that.
//   - Damage is detected up to the end of the archive, by the checksums of zip, gzip and zstd and
//     the headers of tar. A tar without its end was truncated. The error is a [Damaged].
//
// Of an entry only its name, its bytes and its executable bit are used. Owners, times and further
// attributes are ignored.
package unpack
