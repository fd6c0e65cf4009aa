// Package catalogue stores the objects of a listing compactly, and reads them by position. Call
// [NewWriter], [Writer.Add] for each object while the listing arrives, and [Writer.Finish].
//
// Ten million objects as Go values need gigabytes. A catalogue keeps them in blocks of [PerBlock]
// objects: each key shares a prefix with the one before, and hexadecimal versions and checksums
// take half their length. The blocks are in memory while they are small, then in a file. In memory
// remain the offset of each block and a few decoded blocks. Each block has a checksum, so a damaged
// file is an error and never another object.
//
// [Catalogue.Keep] completes the file, so that a later process reads it by [Open] instead of listing
// the source.
package catalogue
