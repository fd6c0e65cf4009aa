package room

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Volume samples the space that a file system has in use, against what was in use at the beginning. It
// counts all that a window causes: directories, journal and reports, too, all at one instant. Nothing
// else may write there.
type Volume struct {
	dir         string
	first, peak int64
	looks       int
	err         error // of the first sample that failed
}

// NewVolume returns the file system at dir as it is before the window.
func NewVolume(dir string) (v *Volume, err error) {
	v = &Volume{dir: dir}
	v.first, err = v.used()
	return v, err
}

func (v *Volume) used() (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(v.dir, &st)
	return int64(st.Blocks-st.Bfree) * st.Bsize, err
}

// Run samples until ctx ends, and once more then.
func (v *Volume) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for v.err == nil {
		ended := ctx.Err() != nil
		now, err := v.used()
		v.peak, v.err = max(v.peak, now-v.first), err
		if v.looks++; ended {
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Peak returns the most that was in use, and in how many samples, after Run has returned.
func (v *Volume) Peak() (bytes int64, looks int, err error) { return v.peak, v.looks, v.err }
