package backends

import "time"

// Version names one state of an object: an ETag, a change counter, or size and
// time where a store has nothing better. It is opaque; two states of an object
// differ exactly when their versions do, as far as the store can tell.
type Version string

// Object is one object of a store as it was listed or statted.
type Object struct {
	Key     string    // relative to the store's root
	Size    int64     // bytes
	ModTime time.Time // zero when the store tells none
	Version Version
	Sum     Checksum // of all bytes; zero when the store tells none
}
