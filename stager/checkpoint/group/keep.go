package group

import "time"

// Sweepable reports whether data that no COMMIT names, but a part of the view does, may
// be removed. It may not while the view is current. still is how long, on the
// sweeper's own clock, the view has not been the current one and the parts of the save
// have not changed; abandon must be longer than any upload and Config.Patience take.
func Sweepable(current View, view string, still, abandon time.Duration) bool {
	return current.Digest != view && still >= abandon
}
