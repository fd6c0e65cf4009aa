package stager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/internal/catalogue"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// After a restart, a window continues with the list of objects that the process before it made, as if
// that process still ran. Meanwhile the source is listed again, and until both are known to be equal
// the last epoch does not end. If the source has changed, the window starts again with the new list,
// as after a restart that lists first. Other processes may write to the directory: what is read passes
// the input's filter and the checks of a listing, so that it never names an object that a listing
// could not.

// listName is the file of the list, in the window's directory.
const listName = disk.Private + "/list"

// errOtherList means that the source has changed since the list was made.
var errOtherList = errors.New("the source has changed since its list was made")

// relistPause is the time between two attempts to list the source again. The store has retried each.
const relistPause = 30 * time.Second

// keepsList reports whether an input's list can be used again: if its order depends on no other file
// of the source, and if its epochs end.
func keepsList(spec plan.Input) bool {
	release := window.Release(spec.Window.Release)
	return plan.NewDigester(spec) != nil && spec.Index == "" && spec.Order.Epochs > 0 &&
		(release == window.ReleaseLease || release == window.ReleaseUnlink)
}

// listStamp identifies what a list depends on. A list does not outlive the boot of the machine,
// because it is not synced, and it is not for a process on another host.
func listStamp(spec plan.Input, store string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal([]any{store, spec.Source, spec.Include, spec.Exclude, spec.MaxBytes, spec.Unpack, disk.Boot(), host})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// oldList returns the list of the process before, added to a new summary; nil if there is none that
// can be used.
func (d *Daemon) oldList(ctx context.Context, in *input, store *backends.Store) (*catalogue.Catalogue, *summary) {
	if !keepsList(in.spec) {
		return nil, nil
	}
	listed, sum, err := readList(ctx, in, store)
	switch {
	case err == nil:
		in.mu.Lock()
		in.listed = append(in.listed, listed)
		in.mu.Unlock()
		d.log.Info("continuing with the list of objects from before the restart, checking it meanwhile", "input", in.spec.Name, "objects", listed.Len())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, catalogue.ErrOther), ctx.Err() != nil:
	default:
		d.log.Warn("cannot use the list of objects from before the restart, listing the source again", "input", in.spec.Name, "error", err)
	}
	return listed, sum
}

func readList(ctx context.Context, in *input, store *backends.Store) (listed *catalogue.Catalogue, sum *summary, err error) {
	stamp, err := listStamp(in.spec, store.Name())
	if err != nil {
		return nil, nil, err
	}
	file, err := disk.Kept(in.spec.Path, listName)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			listed, sum, err = nil, nil, errors.Join(err, file.Close())
		}
	}()
	if listed, err = catalogue.Open(file, stamp); err != nil {
		return nil, nil, err
	}
	sum = newSummary(in.spec)
	n := 0
	for obj, err := range listing(in.spec).Choose(store.Name(), listed.All()) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, nil, err
		}
		sum.add(obj)
		n++
	}
	if n != listed.Len() {
		return nil, nil, fmt.Errorf("it has %d objects that are not the input's", listed.Len()-n)
	}
	return listed, sum, nil
}

// complete completes the file of a list, and returns it; nil if a later process cannot use it. This is
// done before the window learns how much space the list takes.
func complete(spec plan.Input, listed *catalogue.Catalogue, store *backends.Store) (*os.File, error) {
	if !keepsList(spec) {
		return nil, nil
	}
	stamp, err := listStamp(spec, store.Name())
	if err != nil {
		return nil, err
	}
	return listed.Keep(stamp)
}

const notKept = "list of objects is not kept, the source is listed again after a restart"

// keepList gives the list a name, for the process after this one, or removes that of the process
// before. The window holds the directory's lock.
func (d *Daemon) keepList(in *input) {
	kept, err := in.nameList()
	if err != nil {
		d.log.Info(notKept, "input", in.spec.Name, "error", err)
	}
	if !kept {
		d.dropList(in)
	}
}

func (in *input) nameList() (kept bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.unnamed == nil {
		return false, nil
	}
	err = disk.Keep(in.unnamed, in.spec.Path, listName)
	return err == nil, err
}

// dropList removes the list, so that the next process lists the source.
func (d *Daemon) dropList(in *input) {
	if err := disk.Unkeep(in.spec.Path, listName); err != nil {
		d.log.Warn("cannot remove the list of objects", "input", in.spec.Name, "error", err)
	}
}

// closeLists releases the lists.
func (in *input) closeLists() (err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, listed := range in.listed {
		err = errors.Join(err, listed.Close())
	}
	in.listed, in.unnamed, in.whole = nil, nil, nil
	return err
}

func (in *input) setCheck(c *listCheck) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.check = c
}

// unconfirmed reports whether the input's list is still being checked.
func (d *Daemon) unconfirmed(name string) bool {
	for _, in := range d.inputs {
		if in.spec.Name == name {
			in.mu.Lock()
			defer in.mu.Unlock()
			return in.check.pending()
		}
	}
	return false
}

// listCheck compares a list with the source.
type listCheck struct {
	done chan struct{}
	err  error // once done is closed: nil if they are equal, errOtherList, or why it is unknown
}

// checkList lists the source again and compares the digest of its objects with that of the list.
func (d *Daemon) checkList(ctx context.Context, in *input, store *backends.Store, digest string) *listCheck {
	c := &listCheck{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = d.compareLists(ctx, in.spec, store, digest)
		switch {
		case c.err == nil:
			d.log.Info("source listed again, it has not changed", "input", in.spec.Name)
		case errors.Is(c.err, errOtherList):
			d.log.Warn("source has changed since its list was made, starting again with a new list", "input", in.spec.Name)
		}
	}()
	return c
}

// compareLists does that until the store answers.
func (d *Daemon) compareLists(ctx context.Context, spec plan.Input, store *backends.Store, digest string) error {
	for {
		err := compareList(ctx, spec, store, digest)
		if kind := backends.KindOf(err); err == nil || ctx.Err() != nil || kind != backends.Unavailable && kind != backends.Throttled {
			return err
		}
		d.log.Warn("cannot list the source again, retrying", "input", spec.Name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(relistPause):
		}
	}
}

func compareList(ctx context.Context, spec plan.Input, store *backends.Store, digest string) error {
	again := plan.NewDigester(spec)
	for obj, err := range listing(spec).Objects(ctx, store) {
		if err != nil {
			return err
		}
		again.Add(obj)
	}
	if again.Sum() != digest {
		return errOtherList
	}
	return nil
}

// apply tells a window the result of the check, once it is there. It returns when ctx ends, too.
func (c *listCheck) apply(ctx context.Context, w *window.Window) {
	if c == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-c.done:
		if c.err == nil {
			w.Confirm()
		} else if ctx.Err() == nil {
			w.Reopen()
		}
	}
}

// pending reports whether the result is not there yet.
func (c *listCheck) pending() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// failed returns why the list must not be used any more, if this is known.
func (c *listCheck) failed() error {
	if c == nil || c.pending() {
		return nil
	}
	return c.err
}
