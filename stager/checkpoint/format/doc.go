// Package format reports whether a file was written to its end, judging by the structure of its
// format. It reads headers, directories and footers, never the data between them.
//
//	result, err := format.Judge("model.pt", file, size)
//	if err == nil && result.Verdict == format.Incomplete {
//		fmt.Println("model.pt " + result.Reason)
//	}
//
// [Judge] selects a reader by the first bytes and the name of the file. A file is [Whole] when
// every length and offset that the format records fits its size. A truncated file is
// [Incomplete]. Any other file is [Unknown], which is not evidence against it.
//
// Readers must accept hostile files. A constant bounds each read, and no offset from a file is
// used before it is checked against the file's size.
package format
