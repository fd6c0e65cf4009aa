package sys

import "os"

// WriteUnlocked is f.WriteAt. On Linux it lets other writes to the file begin while this one waits for
// the disk, which only matters for files that are open for direct I/O. See HasDirect.
func WriteUnlocked(f *os.File, p []byte, off int64) (n int, err error) { return f.WriteAt(p, off) }
