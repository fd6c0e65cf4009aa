package backends

import "github.com/dustin/go-humanize"

// Size is a number of bytes in a log: 49 MiB in text, a plain number in JSON.
type Size int64

// String returns the size with a unit.
func (s Size) String() string { return humanize.IBytes(uint64(max(s, 0))) }

// Rate is a number of bytes per second in a log: 49 MiB/s in text, a plain number in JSON.
type Rate int64

// String returns the rate with a unit.
func (r Rate) String() string { return Size(r).String() + "/s" }
