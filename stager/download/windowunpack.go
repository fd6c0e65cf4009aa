package download

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// SpareNames is the space that the window reserves for names in an archive, in addition to room.
const SpareNames = disk.Block

// Unpack makes w unpack archives to trees in the window. room returns the space that the window
// reserves for the files of an archive; a larger one is refused.
func (w *Window) Unpack(room func(backends.Object) int64) { w.room = room }

// unpack fetches an archive as a tree.
func (w *Window) unpack(ctx context.Context, item int, in *disk.IncomingTree) (err error) {
	obj, err := w.manifest.Objects.At(item)
	if err != nil {
		return err
	}
	store := w.store(item)
	need := unpackNeeds(obj)
	if err := w.unpacks.Acquire(ctx, need); err != nil {
		return err
	}
	defer w.unpacks.Release(need)
	directory, _ := unpack.Dir(obj.Key)
	into := &destination{dir: plan.FlatName(directory)}
	room := w.room(obj)
	left := room + SpareNames
	take := func(name string, size, takes int64) error {
		if left -= takes + 2*disk.NameRoom(path.Base(name)); left < 0 || size > room {
			return &backends.Error{Op: "unpack", Store: store.Name(), Key: obj.Key, Kind: backends.Invalid, Err: fmt.Errorf(
				"with %q, the unpacked files exceed the %d bytes that the window reserved for an archive of %d bytes; raise window.expand of the input",
				name, room, obj.Size)}
		}
		return nil
	}
	into.admit = func(name string, size int64) error { return take(name, size, disk.Room(size)) }
	if into.to, err = in.Fill(0o777, time.Time{}); err != nil {
		return local(directory, err)
	}
	into.to.Made = func(name string) error { return take(name, 0, disk.DirRoom) }
	c, _, err := unpackObject(ctx, store, obj, into, Options{Verify: w.verify})
	if err == nil && c.Files == 0 {
		// A directory without files has no second links, by which a window recognises it.
		err = &backends.Error{Op: "unpack", Store: store.Name(), Key: obj.Key, Kind: backends.Invalid, Err: errors.New(
			"it contains no files; exclude it")}
	}
	return errors.Join(err, into.to.Close())
}

// UnusableError reports an archive that stays invalid, however often it is fetched.
type UnusableError struct {
	Err     error
	Damaged bool // its bytes are; otherwise it is whole and cannot be unpacked
}

func (e *UnusableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause, and ErrCorrupt so that a window skips the archive.
func (e *UnusableError) Unwrap() []error { return []error{window.ErrCorrupt, e.Err} }

// archiveForWindow is forWindow for archives.
func archiveForWindow(err error) error {
	var damaged *unpack.Damaged
	switch {
	case errors.As(err, &damaged):
		return &UnusableError{Err: err, Damaged: true}
	case isKind(err, backends.Invalid):
		return &UnusableError{Err: err}
	}
	return forWindow(err)
}
