// Package format reports whether one file was written to its end, by the structure of
// the format. It reads headers, directories and footers, never the data between them.
//
// [Judge] selects the reader by the first bytes and the name of the file. A file that a
// reader accepts is [Whole]: every length and offset that the format records fits the
// size of the file. A file that breaks off is [Incomplete]. Everything else is
// [Unknown], which says nothing against the file.
//
// Readers must accept hostile files. Each read is bounded by a constant, and no offset
// from a file is used before it is checked against the file's size.
package format
