package backends

import "time"

// Version identifies one state of an object: an ETag, a change counter, or size and time where a
// store offers nothing better. It is opaque. Two states of an object differ exactly when their
// versions do, as far as the store can tell.
type Version string

// Object describes one object of a store, as returned by List or Stat.
type Object struct {
	Key     string    // relative to the store's root
	Size    int64     // bytes
	ModTime time.Time // zero if the store reports none
	Version Version
	Sum     Checksum // of all bytes; zero if the store reports none
	// Whole: the store sends it from its beginning only, so a range costs all bytes before it.
	Whole bool
}
